//! Servers that the clients reach through the proxy, at the same port of both loopback addresses.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Sockets at one port of 127.0.0.1 and ::1.
fn pair<T>(bind: impl Fn(SocketAddr) -> io::Result<T>, port: impl Fn(&T) -> u16) -> [T; 2] {
    loop {
        let v4 = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        // Another program may have that one.
        if let Ok(v6) = bind((Ipv6Addr::LOCALHOST, port(&v4)).into()) {
            return [v4, v6];
        }
    }
}

/// Serves each connection by a thread of its own, and returns the port.
fn serve(answer: impl Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static) -> u16 {
    let port_of = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let listeners = pair(TcpListener::bind, port_of);
    let port = port_of(&listeners[0]);
    for listener in listeners {
        let answer = answer.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, answer) = (stream.unwrap(), answer.clone());
                // A client that breaks off is its own test's matter.
                thread::spawn(move || answer(stream));
            }
        });
    }
    port
}

/// Sends back what a connection brings, once its end has come.
pub(super) fn echo() -> u16 {
    serve(|mut stream| {
        let mut data = Vec::new();
        stream.read_to_end(&mut data)?;
        stream.write_all(&data)
    })
}

/// Sends `data`, ends that direction, and only then reads; what each connection brought to its end.
pub(super) fn half_closing(data: Vec<u8>) -> (u16, Receiver<Vec<u8>>) {
    let (brought, receiver) = channel();
    let port = serve(move |mut stream| {
        stream.write_all(&data)?;
        stream.shutdown(Shutdown::Write)?;
        let mut back = Vec::new();
        stream.read_to_end(&mut back)?;
        let _ = brought.send(back);
        Ok(())
    });
    (port, receiver)
}

/// Answers each HTTP request with its body, a connection each.
pub(super) fn http() -> u16 {
    serve(|mut stream| {
        let mut lines = BufReader::new(stream.try_clone()?);
        let mut length = 0;
        loop {
            let mut line = String::new();
            lines.read_line(&mut line)?;
            match line.trim().to_ascii_lowercase().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap_or(0),
                _ if line.trim().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        lines.read_exact(&mut body)?;
        let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(&[head.into_bytes(), body].concat())
    })
}

/// Sends datagrams back.
pub(super) fn udp_echo() -> u16 {
    let port_of = |socket: &UdpSocket| socket.local_addr().unwrap().port();
    let sockets = pair(UdpSocket::bind, port_of);
    let port = port_of(&sockets[0]);
    for socket in sockets {
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                socket.send_to(&buffer[..len], from).unwrap();
            }
        });
    }
    port
}

/// A port that refuses connections for as long as this exists.
pub(super) struct Closed(socket2::Socket);

impl Closed {
    pub(super) fn new() -> Closed {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        Closed(socket)
    }

    pub(super) fn port(&self) -> u16 {
        self.0.local_addr().unwrap().as_socket().unwrap().port()
    }
}

/// Passes connections on to `to`, what they bring byte by byte, each byte in a segment of its own; the rest as it comes.
pub(super) fn byte_by_byte(to: SocketAddr) -> u16 {
    serve(move |near| {
        let far = TcpStream::connect(to)?;
        far.set_nodelay(true)?;
        let (mut back_from, mut back_to) = (far.try_clone()?, near.try_clone()?);
        thread::spawn(move || {
            let _ = io::copy(&mut back_from, &mut back_to);
            back_to.shutdown(Shutdown::Write)
        });
        let mut to = &far;
        for byte in BufReader::new(near).bytes() {
            to.write_all(&[byte?])?;
        }
        far.shutdown(Shutdown::Write)
    })
}
