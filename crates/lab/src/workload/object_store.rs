//! Objects that caches and web servers hold.

use crate::rng::Rng;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use vmcc_units::Bytes;

/// Content of a cache: random bytes, so that no object equals another.
#[derive(Debug)]
pub(super) struct ObjectStore {
    sizes: Vec<usize>,
    /// Object `i` begins at byte `i`.
    bytes: Vec<u8>,
}

impl ObjectStore {
    pub(super) fn of(sizes: &[Bytes]) -> Self {
        let sizes: Vec<usize> =
            sizes.iter().map(|size| usize::try_from(size.get()).unwrap_or(usize::MAX)).collect();
        let longest = sizes.iter().max().copied().unwrap_or(0);
        let mut rng = Rng::new(1, 0);
        let bytes = (0..longest + sizes.len()).map(|_| rng.next() as u8).collect();
        Self { sizes, bytes }
    }

    pub(super) fn count(&self) -> usize {
        self.sizes.len()
    }

    pub(super) fn object(&self, number: usize) -> &[u8] {
        &self.bytes[number..number + self.sizes[number]]
    }

    /// Makes every object a file of a folder.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        (0..self.count()).try_for_each(|number| std::fs::write(folder.join(key(number)), self.object(number)))
    }

    /// Puts every object into the cache at `port` of this host.
    pub(super) fn fill(&self, port: u16) -> io::Result<()> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        let mut answers = BufReader::new(stream.try_clone()?);
        for number in 0..self.count() {
            let object = self.object(number);
            let head = format!("set {} 0 0 {}\r\n", key(number), object.len());
            stream.write_all(&[head.as_bytes(), object, b"\r\n"].concat())?;
            let mut answer = String::new();
            answers.read_line(&mut answer)?;
            if answer.trim_end() != "STORED" {
                return Err(io::Error::other(format!("memcached answers {:?}", answer.trim_end())));
            }
        }
        Ok(())
    }
}

/// The key of an object.
pub(super) fn key(number: usize) -> String {
    format!("object{number}")
}
