//! Operations, drawn from a seed.

use crate::network::ADDRESSES;

/// Most operations of a sequence.
const MAX_OPERATIONS: u64 = 100;

/// One operation. Ends are 0 for the client and 1 for the server; indices wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// An end receives, handles its timers and sends.
    Drive(usize),
    /// Time passes until the next timer.
    ToTimer,
    PassMs(u64),
    /// Datagrams under way to an end: all lost, one lost, the first made the last, twice, damaged, all marked.
    DropAll(usize),
    DropOne(usize),
    Reorder(usize),
    Duplicate(usize),
    Damage(usize, u64),
    Mark(usize),
    UpdateKeys(usize),
    /// The NAT gives an address of the client's another port.
    Rebind(usize),
    OpenPath {
        client: usize,
        server: usize,
        backup: bool,
    },
    AbandonPath(usize, usize),
    SetBackup(usize, usize, bool),
    OpenStream(usize, bool),
    Write(usize, usize, usize),
    Finish(usize, usize),
    Reset(usize, usize),
    Read(usize, usize),
    Stop(usize, usize),
    Datagram(usize, usize),
    Close(usize),
}

/// Setting of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    /// The end that is ours: 0 for the client.
    pub(crate) own: usize,
    pub(crate) multipath: bool,
    pub(crate) retry: bool,
    /// Flow control windows of a few packets.
    pub(crate) small_windows: bool,
    /// Operations begin after the handshake.
    pub(crate) connected: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) setup: Setup,
    pub(crate) operations: Vec<Operation>,
}

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn operation(&mut self) -> Operation {
        let end = self.index(2);
        match self.below(64) {
            0..16 => Operation::Drive(end),
            16..20 => Operation::ToTimer,
            20..22 => Operation::PassMs(1 << self.below(13)),
            22..24 => Operation::DropAll(end),
            24..26 => Operation::DropOne(end),
            26..29 => Operation::Reorder(end),
            29 => Operation::Duplicate(end),
            30 => Operation::Damage(end, self.below(1 << 32)),
            31 => Operation::Mark(end),
            32..34 => Operation::UpdateKeys(end),
            34..36 => Operation::Rebind(self.index(ADDRESSES)),
            36..41 => Operation::OpenPath {
                client: self.index(ADDRESSES),
                server: self.index(ADDRESSES),
                backup: self.chance(4),
            },
            41..44 => Operation::AbandonPath(end, self.index(4)),
            44..46 => Operation::SetBackup(end, self.index(4), self.chance(2)),
            46..49 => Operation::OpenStream(end, self.chance(2)),
            49..54 => Operation::Write(end, self.index(6), self.index(10_000)),
            54..56 => Operation::Finish(end, self.index(6)),
            56 => Operation::Reset(end, self.index(6)),
            57..60 => Operation::Read(end, self.index(6)),
            60 => Operation::Stop(end, self.index(6)),
            61..63 => Operation::Datagram(end, self.index(1400)),
            _ if self.chance(4) => Operation::Close(end),
            _ => Operation::Write(end, self.index(6), 100_000),
        }
    }
}

impl Sequence {
    pub(crate) fn draw(seed: u64) -> Sequence {
        let mut draw = Draw(seed);
        let setup = Setup {
            seed,
            own: draw.index(2),
            multipath: !draw.chance(4),
            retry: draw.chance(4),
            small_windows: draw.chance(4),
            connected: !draw.chance(4),
        };
        let count = draw.below(MAX_OPERATIONS);
        Sequence { setup, operations: (0..count).map(|_| draw.operation()).collect() }
    }
}
