//! Halves of streams that an end sends and receives, with their contents checked.

use crate::end::{End, Ending};
use vmcc_transport::Dir;

/// Byte of a half at an offset, so that no two halves are alike.
fn byte(from: usize, stream: u64, offset: u64) -> u8 {
    let mixed = (offset ^ stream << 40 ^ (from as u64) << 60).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

#[derive(Clone, Debug)]
pub(crate) struct Sending {
    pub(crate) stream: u64,
    written: u64,
    /// Finished or reset, by this end or because the peer stopped it.
    over: bool,
    reset: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Receiving {
    stream: u64,
    read: u64,
    ending: Ending,
    stopped: bool,
}

/// Streams of one end.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) sending: Vec<Sending>,
    pub(crate) receiving: Vec<Receiving>,
}

/// Element of a list that may be empty, at an index that wraps around.
fn wrapped<T>(list: &mut [T], index: usize) -> Option<&mut T> {
    let len = list.len().max(1);
    list.get_mut(index % len)
}

impl Streams {
    fn insert(&mut self, stream: u64, sends: bool, receives: bool) {
        if sends {
            self.sending.push(Sending { stream, written: 0, over: false, reset: false });
        }
        if receives {
            self.receiving.push(Receiving { stream, read: 0, ending: Ending::Open, stopped: false });
        }
    }

    pub(crate) fn open(&mut self, end: &mut dyn End, dir: Dir) {
        if let Some(stream) = end.open_stream(dir) {
            self.insert(stream, true, dir == Dir::Bi);
        }
    }

    pub(crate) fn accept(&mut self, end: &mut dyn End) {
        for stream in end.accept() {
            self.insert(stream, stream & 2 == 0, true);
        }
    }

    pub(crate) fn write(&mut self, end: &mut dyn End, from: usize, index: usize, len: usize) {
        let Some(half) = wrapped(&mut self.sending, index).filter(|half| !half.over) else { return };
        let data: Vec<u8> =
            (half.written..half.written + len as u64).map(|offset| byte(from, half.stream, offset)).collect();
        half.written += end.write(half.stream, &data) as u64;
    }

    pub(crate) fn finish(&mut self, end: &mut dyn End, index: usize) {
        if let Some(half) = wrapped(&mut self.sending, index).filter(|half| !half.over) {
            half.over = true;
            end.finish(half.stream);
        }
    }

    pub(crate) fn finish_all(&mut self, end: &mut dyn End) {
        (0..self.sending.len()).for_each(|index| self.finish(end, index));
    }

    pub(crate) fn reset(&mut self, end: &mut dyn End, index: usize) {
        if let Some(half) = wrapped(&mut self.sending, index).filter(|half| !half.reset)
            && end.reset(half.stream)
        {
            (half.over, half.reset) = (true, true);
        }
    }

    pub(crate) fn stop(&mut self, end: &mut dyn End, index: usize) {
        if let Some(half) = wrapped(&mut self.receiving, index).filter(|half| half.ending == Ending::Open) {
            half.stopped |= end.stop(half.stream);
        }
    }

    /// Reads one stream until there is no more.
    ///
    /// # Errors
    /// Its contents are not those that were written.
    pub(crate) fn read(&mut self, end: &mut dyn End, to: usize, index: usize) -> Result<(), String> {
        let Some(half) = wrapped(&mut self.receiving, index) else { return Ok(()) };
        if half.stopped || half.ending != Ending::Open {
            return Ok(());
        }
        let mut data = Vec::new();
        half.ending = end.read(half.stream, &mut data);
        for (offset, got) in (half.read..).zip(&data) {
            if *got != byte(1 - to, half.stream, offset) {
                return Err(format!("stream {} has another byte at {offset}", half.stream));
            }
        }
        half.read += data.len() as u64;
        Ok(())
    }

    pub(crate) fn read_all(&mut self, end: &mut dyn End, to: usize) -> Result<(), String> {
        (0..self.receiving.len()).try_for_each(|index| self.read(end, to, index))
    }
}

/// The first half of a stream that has not come to its end at the receiver.
pub(crate) fn unfinished(from: &Streams, to: &Streams) -> Option<String> {
    let settled = |half: &&Sending| {
        let Some(other) = to.receiving.iter().find(|other| other.stream == half.stream) else { return false };
        other.stopped
            || match other.ending {
                Ending::Whole => other.read == half.written,
                Ending::Reset => half.reset,
                Ending::Open | Ending::Unknown => false,
            }
    };
    let half = from.sending.iter().find(|half| !settled(half))?;
    let other = to.receiving.iter().find(|other| other.stream == half.stream);
    Some(format!("{half:?} is {other:?}"))
}
