//! Sequences that no client at hand sends: data right behind a request, whatever becomes of it.

use super::targets::{Closed, echo};
use super::{CARRIERS, Net, UNKNOWN};
use crate::it::sides::TIMEOUT;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

/// Offers no authentication.
const GREETING: [u8; 3] = [5, 1, 0];
/// More than a request can be.
const BEHIND: [u8; 5000] = [7; 5000];
/// Address of a reply that names none.
const ADDRESS: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// A request with this command for this host, which is given by its name.
fn request(command: u8, host: &str, port: u16) -> Vec<u8> {
    let name = [&[host.len() as u8], host.as_bytes()].concat();
    [&GREETING[..], &[5, command, 0, 3], &name, &port.to_be_bytes()].concat()
}

/// Sends all of it at once, and returns what comes until the end; an error if that is a reset.
fn answer(net: &Net, sent: &[u8]) -> Result<Vec<u8>, ErrorKind> {
    let mut stream = TcpStream::connect(net.socks).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(sent).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(|error| error.kind())?;
    Ok(answer)
}

fn reply(code: u8) -> Vec<u8> {
    [&[5, 0, 5, code, 0], &ADDRESS[..]].concat()
}

#[test]
fn data_behind_a_request_are_carried() {
    let target = echo();
    for carrier in CARRIERS {
        let net = Net::new(carrier);
        let mut stream = TcpStream::connect(net.socks).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(&[&request(1, "localhost", target)[..], &BEHIND].concat()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back == [&reply(0)[..], &BEHIND].concat(), "{carrier}: {} bytes", back.len());
    }
}

/// A socket that is closed with unread data sends a reset, and many systems drop the reply at that.
#[test]
fn refusals_are_no_resets_if_data_are_behind_the_request() {
    let closed = Closed::new();
    for carrier in CARRIERS {
        let net = Net::new(carrier);
        for (case, sent, expected) in [
            ("a closed port", request(1, "127.0.0.1", closed.port()), reply(5)),
            ("an unknown name", request(1, UNKNOWN, 80), reply(4)),
            ("BIND", request(2, "127.0.0.1", 80), reply(7)),
            ("an unknown kind of address", [&GREETING[..], &[5, 1, 0, 9]].concat(), reply(8)),
            ("GSSAPI alone", vec![5, 1, 1], vec![5, 0xff]),
        ] {
            assert_eq!(answer(&net, &[&sent[..], &BEHIND].concat()), Ok(expected), "{case} over {carrier}");
        }
        if carrier == "tcp" {
            assert_eq!(answer(&net, &[&request(3, "0.0.0.0", 0)[..], &BEHIND].concat()), Ok(reply(7)));
        }
    }
}
