//! The seams of sending several at once: against a kernel that is written down here, and against this host's.

use super::*;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Messages as the engine gives them: where to, ECN-capable or not, size of a segment, and how many bytes.
struct Made(Vec<(Transmit, Vec<u8>)>);

impl Made {
    fn of(all: &[(SocketAddr, bool, usize, usize)]) -> Made {
        let local = "127.0.0.1:1".parse().unwrap();
        let mut next = 0_u8;
        let one = |&(remote, ect, segment, len): &(SocketAddr, bool, usize, usize)| {
            let bytes = std::iter::repeat_with(|| {
                next = next.wrapping_add(1);
                next
            });
            (Transmit { route: Route { local, remote }, ect, segment, len }, bytes.take(len).collect())
        };
        Made(all.iter().map(one).collect())
    }

    fn messages(&self) -> Vec<Message<'_>> {
        self.0.iter().map(|(transmit, bytes)| Message { transmit, bytes }).collect()
    }
}

fn to(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 2], port))
}

/// Answers of a kernel, one for each call, and what it was given.
struct Kernel {
    answers: VecDeque<io::Result<usize>>,
    segments: usize,
    calls: Vec<Vec<(u16, bool, Vec<u8>)>>,
}

impl Kernel {
    fn push(
        answers: Vec<io::Result<usize>>,
        segments: usize,
        made: &Made,
    ) -> (Kernel, Progress, Vec<Refusal>) {
        let (mut refusals, messages) = (Vec::new(), made.messages());
        let kernel = std::cell::RefCell::new(Kernel { answers: answers.into(), segments, calls: Vec::new() });
        let hand_over = |packets: &[quinn_udp::Transmit<'_>]| {
            let mut kernel = kernel.borrow_mut();
            let said = |one: &quinn_udp::Transmit<'_>| {
                (one.destination.port(), one.ecn.is_some(), one.contents.to_vec())
            };
            kernel.calls.push(packets.iter().map(said).collect());
            let answer = kernel.answers.pop_front().unwrap_or(Ok(packets.len()));
            if answer.as_ref().is_err_and(|error| error.raw_os_error() == Some(nix::libc::EIO)) {
                kernel.segments = 1;
            }
            answer
        };
        let done = super::push(&messages, false, || kernel.borrow().segments, hand_over, &mut refusals);
        (kernel.into_inner(), done, refusals)
    }

    fn sizes(&self) -> Vec<Vec<usize>> {
        self.calls.iter().map(|call| call.iter().map(|(_, _, bytes)| bytes.len()).collect()).collect()
    }
}

fn code(code: i32) -> io::Result<usize> {
    Err(io::Error::from_raw_os_error(code))
}

#[test]
fn sendmmsg_batches_mixed_sizes_and_destinations_not_mixed_ecn() {
    let made = Made::of(&[
        (to(1), true, 1200, 1200),
        (to(2), true, 40, 40),
        (to(1), false, 1200, 1200),
        (to(1), false, 100, 250),
        (to(3), false, 100, 200),
        (to(1), false, 7, 7),
    ]);
    let (kernel, done, refusals) = Kernel::push(Vec::new(), 64, &made);
    let several = cfg!(target_os = "linux");
    let expected: &[&[usize]] = match several {
        true => &[&[1200, 40], &[1200], &[250, 200], &[7]],
        false => &[&[1200], &[40], &[1200], &[250], &[200], &[7]],
    };
    assert_eq!(kernel.sizes(), expected);
    assert_eq!((done.messages, refusals.len()), (6, 0));
    // Without segmentation offload each segment is a packet.
    let (kernel, _, _) = Kernel::push(Vec::new(), 1, &made);
    if several {
        assert_eq!(kernel.sizes(), [vec![1200, 40], vec![1200, 100, 100, 50, 100, 100, 7]]);
    }
}

#[test]
fn partial_sends_resume_until_the_socket_buffer_is_full() {
    let made = Made::of(&[(to(1), false, 10, 35), (to(2), false, 10, 10), (to(3), false, 10, 20)]);
    let all: Vec<u8> = made.0.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    for taken in 1..7 {
        let answers =
            if cfg!(target_os = "linux") { vec![Ok(taken)] } else { (0..taken).map(|_| Ok(1)).collect() };
        let answers = answers.into_iter().chain([code(nix::libc::EAGAIN)]).collect();
        let (kernel, done, refusals) = Kernel::push(answers, 1, &made);
        let sizes = [10, 10, 10, 5, 10, 10, 10];
        let sent: usize = sizes[..taken].iter().sum();
        let messages = made.messages();
        let rest: Vec<u8> = done.rest(&messages).flat_map(|message| message.bytes.to_vec()).collect();
        assert_eq!(rest, all[sent..], "{taken} were taken");
        assert!(refusals.is_empty() && kernel.answers.is_empty());
        assert!(done.rest(&messages).all(|message| !message.bytes.is_empty()));
    }
}

#[test]
fn send_error_drops_only_the_message_of_its_packet() {
    let made = Made::of(&[(to(1), false, 10, 10), (to(2), false, 10, 30), (to(3), false, 10, 10)]);
    let dead = nix::libc::ENETUNREACH;
    let answers =
        if cfg!(target_os = "linux") { vec![Ok(2), code(dead)] } else { vec![Ok(1), Ok(1), code(dead)] };
    let (kernel, done, refusals) = Kernel::push(answers, 1, &made);
    assert_eq!(done, Progress { messages: 3, bytes: 0 });
    assert_eq!((refusals.len(), refusals[0].0.remote), (1, to(2)));
    let last = kernel.calls.last().unwrap();
    assert_eq!((last.len(), last[0].0), (1, 3), "what follows it leaves");
    // A probe of a size that does not leave is lost, and nothing else.
    let (kernel, done, refusals) = Kernel::push(vec![code(nix::libc::EMSGSIZE)], 1, &made);
    assert_eq!(
        (done.messages, refusals.len(), kernel.sizes().last().unwrap().len()),
        (3, 0, if cfg!(target_os = "linux") { 4 } else { 1 })
    );
}

#[test]
fn device_without_gso_gets_single_segments() {
    let made = Made::of(&[(to(1), false, 10, 30), (to(2), false, 10, 10)]);
    let (kernel, done, refusals) = Kernel::push(vec![code(nix::libc::EIO)], 64, &made);
    assert_eq!((done.messages, refusals.len()), (2, 0));
    assert_eq!(kernel.sizes()[0], [30]);
    assert_eq!(kernel.sizes()[1..].concat(), [10, 10, 10, 10]);
}

/// Every way in which a kernel may behave: each byte is taken once, in order, refused with its message, or left.
#[test]
fn no_packet_is_lost_or_duplicated_for_any_kernel_result() {
    let mut state = 7_u64;
    let mut draw = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    for _ in 0..2000 {
        let count = 1 + draw(6);
        let all: Vec<_> = (0..count)
            .map(|i| (to(1 + i as u16), draw(2) == 0, 1 + draw(9) as usize, draw(40) as usize))
            .collect();
        let made = Made::of(&all);
        let messages = made.messages();
        let (mut taken, mut refused) = (vec![Vec::new(); all.len()], vec![false; all.len()]);
        let mut refusals = Vec::new();
        let mut full = false;
        let done = super::push(
            &messages,
            false,
            || 1 + (count as usize % 3) * 5,
            |packets| {
                assert!(!packets.is_empty() && !full);
                let which = usize::from(packets[0].destination.port()) - 1;
                match draw(8) {
                    0 => {
                        full = true;
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    1 => {
                        refused[which] = true;
                        return Err(io::Error::from_raw_os_error(nix::libc::EHOSTUNREACH));
                    }
                    _ => {}
                }
                let count = 1 + draw(packets.len() as u64) as usize;
                for packet in &packets[..count] {
                    let which = usize::from(packet.destination.port()) - 1;
                    assert!(
                        packet.contents.len() <= packet.segment_size.unwrap_or(usize::MAX).saturating_mul(16)
                    );
                    taken[which].extend_from_slice(packet.contents);
                }
                Ok(count)
            },
            &mut refusals,
        );
        let mut left = vec![Vec::new(); all.len()];
        for message in done.rest(&messages) {
            left[usize::from(message.transmit.route.remote.port()) - 1] = message.bytes.to_vec();
        }
        assert!(full || left.iter().all(Vec::is_empty));
        for (i, (_, bytes)) in made.0.iter().enumerate() {
            let seen = [&taken[i][..], &left[i]].concat();
            match refused[i] {
                true => assert!(bytes.starts_with(&seen) && left[i].is_empty()),
                false => assert_eq!(&seen, bytes),
            }
        }
        assert_eq!(refusals.len(), refused.iter().filter(|one| **one).count());
    }
}

/// A socket of this host's that receives, and what came: who sent it, its ECN bits, its bytes.
struct Far(Socket);

impl Far {
    fn open(at: &str) -> Far {
        Far(Socket::open(at.parse().unwrap(), None).unwrap())
    }

    async fn take(&self, count: usize) -> Vec<(SocketAddr, SocketAddr, Ecn, Vec<u8>)> {
        let (mut buffers, mut all) = (Buffers::new(), Vec::new());
        let done = std::future::poll_fn(|cx| {
            while all.len() < count {
                std::task::ready!(self.0.poll_receive(cx, &mut buffers, |route, ecn, bytes| {
                    all.push((route.remote, route.local, ecn, bytes.to_vec()));
                }))
                .unwrap();
            }
            Poll::Ready(())
        });
        tokio::time::timeout(TIMEOUT, done).await.expect("not all of it comes");
        all
    }
}

#[tokio::test]
async fn one_call_sends_to_several_peers_with_ecn_and_source_address() {
    for (any, from, at) in [("0.0.0.0:0", "127.0.0.3", "127.0.0.2:0"), ("[::]:0", "::1", "[::1]:0")] {
        let mut near = Socket::open(any.parse().unwrap(), None).unwrap();
        let (one, other) = (Far::open(at), Far::open(at));
        let local = SocketAddr::new(from.parse().unwrap(), near.local().port());
        let mut made = Made::of(&[
            (one.0.local(), true, 1200, 1200),
            (other.0.local(), true, 30, 30),
            (one.0.local(), false, 500, 500),
            (one.0.local(), true, 400, 1000),
            (other.0.local(), true, 400, 800),
            (one.0.local(), false, 9, 9),
        ]);
        made.0.iter_mut().for_each(|(transmit, _)| transmit.route.local = local);
        let mut refusals = Vec::new();
        near.io.writable().await.unwrap();
        near.send(&made.messages(), &mut refusals);
        assert!(refusals.is_empty() && near.waiting.is_empty(), "{refusals:?}");
        for (far, count) in [(&one, 6), (&other, 3)] {
            let came = far.take(count).await;
            let expected: Vec<_> = made
                .0
                .iter()
                .filter(|(transmit, _)| transmit.route.remote == far.0.local())
                .flat_map(|(transmit, bytes)| {
                    let ecn = if transmit.ect { Ecn::Ect0 } else { Ecn::NotEct };
                    bytes
                        .chunks(transmit.segment)
                        .map(move |piece| (local, far.0.local(), ecn, piece.to_vec()))
                })
                .collect();
            assert_eq!(came, expected);
        }
    }
}

/// Datagrams that the kernel segments are one to it before, which has a longest length.
#[tokio::test]
async fn gso_batches_stay_within_the_udp_length_limit() {
    let mut near = Socket::open("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let far = Far::open("127.0.0.2:0");
    for segment in [1_452, 1_489, 9_000, 16_383] {
        let made = Made::of(&[(far.0.local(), false, segment, segment * SEGMENTS)]);
        let mut refusals = Vec::new();
        near.io.writable().await.unwrap();
        near.send(&made.messages(), &mut refusals);
        assert!(refusals.is_empty() && near.waiting.is_empty(), "{refusals:?}");
        let came: Vec<_> = far.take(SEGMENTS).await.into_iter().map(|(_, _, _, bytes)| bytes).collect();
        let sent: Vec<_> = made.0[0].1.chunks(segment).collect();
        assert!(came.iter().eq(&sent), "{segment}");
    }
}

#[tokio::test]
async fn refused_packets_do_not_drop_their_neighbours() {
    let mut near = Socket::open("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let far = Far::open("127.0.0.2:0");
    // No socket may broadcast that has not asked for it; nothing is as long as that.
    let broadcast = "255.255.255.255:9".parse().unwrap();
    let here = far.0.local();
    let sizes = [(here, 10), (broadcast, 11), (here, 12), (here, 65_530), (broadcast, 13), (here, 14)];
    let made = Made::of(&sizes.map(|(to, len)| (to, false, len, len)));
    let mut refusals = Vec::new();
    near.io.writable().await.unwrap();
    near.send(&made.messages(), &mut refusals);
    let refused: Vec<_> = refusals.iter().map(|(route, error)| (route.remote, error.kind())).collect();
    assert_eq!(refused, [(broadcast, io::ErrorKind::PermissionDenied); 2]);
    let came: Vec<_> = far.take(3).await.into_iter().map(|(_, _, _, bytes)| bytes.len()).collect();
    assert_eq!(came, [10, 12, 14]);
}

#[tokio::test]
async fn queued_packets_leave_in_order() {
    let mut near = Socket::open("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let far = Far::open("127.0.0.2:0");
    let here = far.0.local();
    let made = Made::of(&(0..100).map(|i| (here, i % 3 == 0, 20, 20 + i % 40)).collect::<Vec<_>>());
    // As if there had been no room, in the middle of a message.
    let messages = made.messages();
    let first = Message { bytes: &messages[0].bytes[..20], ..messages[0] };
    near.waiting.push_back(QueuedMessage { transmit: first.transmit.clone(), bytes: first.bytes.to_vec() });
    near.waiting_bytes = 20;
    let mut refusals = Vec::new();
    near.send(&messages[1..], &mut refusals);
    assert_eq!(near.waiting.len(), 100, "it does not overtake");
    std::future::poll_fn(|cx| {
        near.poll_flush(cx, &mut refusals);
        if near.waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    assert_eq!((near.waiting_bytes, refusals.len()), (0, 0));
    let expected: Vec<Vec<u8>> = made
        .0
        .iter()
        .flat_map(|(transmit, bytes)| bytes.chunks(transmit.segment).map(<[u8]>::to_vec))
        .collect();
    let came = far.take(expected.len()).await;
    assert!(came.iter().map(|(_, _, _, bytes)| bytes).eq(&expected));
    // More than that is dropped, as by a full queue.
    near.waiting
        .push_back(QueuedMessage { transmit: first.transmit.clone(), bytes: vec![1; BACKLOG_BYTES - 30] });
    near.waiting_bytes = BACKLOG_BYTES - 30;
    near.send(&messages[..40], &mut refusals);
    assert_eq!((near.waiting.len(), near.waiting_bytes), (2, BACKLOG_BYTES - 10));
}
