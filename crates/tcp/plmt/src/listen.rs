//! The server: connections are greeted, make sessions or join them.

use crate::connection::Connection;
use crate::pipe::{Pipe, TcpPipe};
use crate::security::{Secured, ServerSecurity, random_secret};
use crate::shared::{Shared, time_since};
use crate::socket::NewSocket;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{sleep, timeout};
use vmcc_tcp::{
    Acceptor, Binding, CarrierError, Config, Greeting, Refusal, Secrets, Session, Token, refusal,
};

/// Time for a TLS handshake and a greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that have not been greeted yet; beyond it the oldest is ended.
const MAX_PENDING: usize = 1024;
/// Sessions at a time.
const MAX_SESSIONS: usize = 4096;
/// Sessions that were made and not accepted yet.
const MAX_BACKLOG: usize = 128;
/// Waiting time after the system could not accept, as when descriptors are used up.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Bytes of one read of a greeting.
const CHUNK: usize = 1 << 10;

/// Accepts sessions at one or more addresses.
#[derive(Debug)]
pub struct Listener {
    incoming: mpsc::Receiver<Connection>,
    addresses: Vec<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
    server: Arc<Server>,
}

/// Takes pipes into a listener's sessions that it does not accept itself.
#[derive(Clone)]
pub struct PipeAcceptor(Arc<Server>);

impl PipeAcceptor {
    /// Gives a new pipe to the session that its greeting makes or names. `binding` is a secret that only the pipe's two ends know.
    ///
    /// # Errors
    /// The peer does not greet in time, or speaks something else.
    pub async fn greet(&self, pipe: Box<dyn Pipe>, binding: Binding) -> io::Result<()> {
        let new = NewSocket { pipe, secured: Secured::by_pipe(binding) };
        timeout(GREETING_TIMEOUT, self.0.clone().greet(new)).await?
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({:?})", self.security)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Listener {
    /// Listens at these addresses. With `backup` the server sends data over TCP only while a session has no other pipe.
    ///
    /// # Errors
    /// The system refuses one of them.
    pub async fn bind(
        addresses: &[SocketAddr],
        config: Config,
        security: ServerSecurity,
        backup: bool,
    ) -> io::Result<Listener> {
        let mut listeners = Vec::new();
        for address in addresses {
            listeners.push(TcpListener::bind(address).await?);
        }
        Listener::new(listeners, config, security, backup)
    }

    /// Accepts from these sockets.
    ///
    /// # Errors
    /// One of them has no address.
    pub fn new(
        listeners: Vec<TcpListener>,
        config: Config,
        security: ServerSecurity,
        backup: bool,
    ) -> io::Result<Listener> {
        let (sender, incoming) = mpsc::channel(MAX_BACKLOG);
        let server = Arc::new(Server {
            config,
            security,
            backup,
            sender,
            sessions: Mutex::new(HashMap::new()),
            pending: Mutex::new(VecDeque::new()),
            begin: Instant::now(),
        });
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        let serve = |listener| tokio::spawn(serve(listener, server.clone()));
        let tasks = listeners.into_iter().map(serve).collect();
        Ok(Listener { incoming, addresses, tasks, server })
    }

    /// The addresses it listens at.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Entry for pipes that are not TCP connections.
    pub fn pipes(&self) -> PipeAcceptor {
        PipeAcceptor(self.server.clone())
    }

    /// The next session.
    ///
    /// # Errors
    /// The listener's tasks have ended.
    pub async fn accept(&mut self) -> io::Result<Connection> {
        self.incoming.recv().await.ok_or_else(|| io::Error::other("the listener has ended"))
    }
}

struct Server {
    config: Config,
    security: ServerSecurity,
    backup: bool,
    sender: mpsc::Sender<Connection>,
    sessions: Mutex<HashMap<Token, Weak<Shared>>>,
    /// Connections that are being greeted, oldest first.
    pending: Mutex<VecDeque<AbortHandle>>,
    begin: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, server: Arc<Server>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        let greeted = server.clone();
        let task = tokio::spawn(async move {
            // An unknown peer's failure is nobody's news.
            let _ = timeout(GREETING_TIMEOUT, greeted.greet_tcp(stream)).await;
        });
        let mut pending = lock(&server.pending);
        while pending.front().is_some_and(AbortHandle::is_finished) {
            pending.pop_front();
        }
        if pending.len() >= MAX_PENDING
            && let Some(oldest) = pending.pop_front()
        {
            oldest.abort();
        }
        pending.push_back(task.abort_handle());
    }
}

impl Server {
    async fn greet_tcp(self: Arc<Server>, mut stream: TcpStream) -> io::Result<()> {
        let secured = self.security.handshake(&mut stream).await?;
        let pipe = TcpPipe::new(stream, self.config.notsent_lowat(), self.backup);
        self.greet(NewSocket { pipe: Box::new(pipe), secured }).await
    }

    async fn greet(self: Arc<Server>, mut new: NewSocket) -> io::Result<()> {
        let greeting = read_greeting(&mut new).await?;
        let refused = match greeting {
            Greeting::Hello(hello) => {
                let is_full = lock(&self.sessions).len() >= MAX_SESSIONS;
                match self.sender.try_reserve() {
                    Ok(permit) if !is_full => {
                        permit.send(self.start(&hello, new)?);
                        return Ok(());
                    }
                    _ => Refusal::ServerFull,
                }
            }
            Greeting::Join(join) => {
                let session = lock(&self.sessions).get(&join.token).and_then(Weak::upgrade);
                let Some(shared) = session else { return refuse(new, Refusal::UnknownSession).await };
                let mut inner = shared.lock();
                let now = inner.now();
                match inner.session.join(now, &join, new.secured.binding) {
                    Ok(id) => {
                        inner.add_socket(id, new);
                        return Ok(());
                    }
                    Err(refused) => refused,
                }
            }
        };
        new.secured.early.clear();
        refuse(new, refused).await
    }

    fn start(self: &Arc<Server>, hello: &vmcc_tcp::Hello, new: NewSocket) -> io::Result<Connection> {
        let (config, binding) = (self.config.clone(), new.secured.binding);
        let secrets = Secrets(random_secret()?);
        let session = Session::accept(time_since(self.begin), config, secrets, hello, binding);
        let token = session.token();
        let shared = Shared::new(session, self.begin);
        shared.lock().add_socket(0, new);
        lock(&self.sessions).insert(token, Arc::downgrade(&shared));
        let server = self.clone();
        Ok(Connection::spawn(&shared, move || drop(lock(&server.sessions).remove(&token))))
    }
}

/// Reads a connection's first record; what follows it stays in `secured.early`.
async fn read_greeting(new: &mut NewSocket) -> io::Result<Greeting> {
    let NewSocket { pipe, secured } = new;
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut acceptor = Acceptor::default();
    let mut buffer = [0; CHUNK];
    loop {
        let early = std::mem::take(&mut secured.early);
        let mut rest = &early[..];
        let greeting = acceptor.read(&mut rest).map_err(|error: CarrierError| invalid(error.to_string()))?;
        if let Some(greeting) = greeting {
            secured.early = rest.to_vec();
            return Ok(greeting);
        }
        let len = pipe.read(&mut buffer).await?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match &mut secured.tls {
            Some(tls) => {
                tls.read(&buffer[..len], &mut secured.early).map_err(|error| invalid(error.to_string()))?
            }
            None => secured.early.extend_from_slice(&buffer[..len]),
        }
    }
}

async fn refuse(mut new: NewSocket, reason: Refusal) -> io::Result<()> {
    let record = refusal(reason);
    let mut out = Vec::new();
    match &mut new.secured.tls {
        Some(tls) => tls.write(&record, &mut out).map_err(io::Error::other)?,
        None => out = record,
    }
    new.pipe.write_all(&out).await?;
    new.pipe.shutdown().await?;
    new.pipe.end_gracefully();
    Ok(())
}
