//! `vmcc proxy`: both of its sides.

use super::keys;
use crate::args::ProxyOptions;
use crate::failure::{Exit, Failure, chain};
use crate::interrupt;
use crate::ui::Ui;
use std::sync::Arc;
use vmcc_apps::keys::{self as stored, Identity};
use vmcc_apps::proxy::{self, ClientJob, Event, ProxyError, ServerJob};
use vmcc_apps::session::ConnectError;

pub(crate) fn proxy(options: &ProxyOptions, ui: &Ui) -> Result<Exit, Failure> {
    let folder = keys::folder(options.keys.as_deref())?;
    let named = keys::fingerprints(&options.peers)?;
    let (identity, _) = Identity::load_or_create(&folder).map_err(|error| keys::failure(&error))?;
    let mut peers = stored::peers(&folder).map_err(|error| keys::failure(&error))?;
    peers.extend(named);
    ui.note(&format!("this side shows {}", identity.fingerprint()));
    let qlog = super::qlog::open(options.qlog.as_deref(), ui)?;
    let stop = interrupt::listen()?;
    let (metrics, carrier) = (options.metrics, options.carrier);
    let tell = Arc::new(|event| say(&event));
    let done = match (&options.listen, &options.server) {
        (Some(listen), _) => proxy::server(
            &ServerJob { listen: *listen, peers, identity, carrier, qlog: qlog.clone(), metrics },
            tell,
            stop,
        ),
        (None, None) => return Err(Failure::usage("a proxy needs a server's side, or --listen to be one")),
        (None, Some(server)) => {
            let usual = options.forwards.is_empty().then_some(proxy::DEFAULT_SOCKS);
            let socks = options.socks.or(usual);
            let (server, locals, forwards) =
                (server.clone(), options.locals.clone(), options.forwards.clone());
            let (qlog, relays, most) = (qlog.clone(), super::relays::find(&options.relays)?, options.most);
            proxy::client(
                &ClientJob {
                    server,
                    peers,
                    identity,
                    locals,
                    relays,
                    most,
                    socks,
                    forwards,
                    carrier,
                    http_proxy: options.via_http_proxy.clone(),
                    qlog,
                    metrics,
                },
                tell,
                stop,
            )
        }
    };
    super::qlog::finish(qlog, ui);
    done.map_err(|error| failure(&error))?;
    Ok(Exit::Interrupted)
}

/// On stderr, because it goes on.
fn say(event: &Event) {
    let text = match event {
        Event::Listening(what, address) => format!("listening for {what} at {address}"),
        Event::Connected(address) => format!("connected with {address}"),
        Event::Single(address) => {
            format!("{address} speaks no multipath QUIC: everything goes over one path")
        }
        Event::Lost(address, reason) => format!("no longer connected with {address}: {reason}"),
        Event::NoPath(attempt) => format!("no path from {attempt}"),
        Event::Unreachable(reason) => format!("not connected: {reason}"),
        Event::Full(programs) => format!(
            "{programs} programs are connected, as many as there can be: others wait until one ends; `ss -tnp` lists who keeps connections open"
        ),
        _ => return,
    };
    crate::ui::note(&text);
}

/// Failure for an error, with the remedy where the text has none.
fn failure(error: &ProxyError) -> Failure {
    let text = chain(error);
    match error {
        ProxyError::Interrupted => Failure::interrupted(text),
        ProxyError::Open(_) => Failure::usage(text).help(
            "SOCKS5 and forwards listen at 127.0.0.1; the server's side may listen elsewhere once it trusts its clients: vmcc keys --trust FINGERPRINT",
        ),
        ProxyError::NoPeer => Failure::usage(text)
            .help("run `vmcc keys` at the server, and give what it prints with --peer, or once and for all to `vmcc keys --trust`"),
        ProxyError::Listen { .. } => Failure::host(text).help("choose another address or port, or end what has it"),
        ProxyError::Name(_) => super::paths::unknown(text),
        ProxyError::NotOverTcp(..) | ProxyError::NeedsTcp => Failure::usage(text),
        ProxyError::Reach(ConnectError::Tcp(_)) => Failure::host(text).help(
            "check that the server's side runs with the same --carrier, or auto, and that TCP reaches it; who is not trusted is trusted with `vmcc keys --trust FINGERPRINT`",
        ),
        ProxyError::Reach(_) => Failure::host(text).help(
            "check that the server's side runs and that UDP reaches it: `vmcc paths HOST:PORT`; where UDP is blocked --carrier auto uses TCP; who is not trusted is trusted with `vmcc keys --trust FINGERPRINT`",
        ),
        ProxyError::NotAccepted(..) => Failure::host(text)
            .help("run `vmcc keys` here, and trust what it prints at the server: `vmcc keys --trust FINGERPRINT`; then start the server's side again"),
        ProxyError::Keys(error) => keys::failure(error),
        _ => Failure::host(text),
    }
}
