//! Bytes whose every word follows from its place, so that the receiver notices what is missing, moved or changed.

use crate::Result;
use crate::process::{Meter, Usage};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes of one write and one read.
pub(crate) const PIECE: usize = 256 << 10;
/// Odd, so that no two words of a stream are the same.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn words(at: u64) -> impl Iterator<Item = u64> {
    let first = (at / 8).wrapping_mul(STEP);
    (0..PIECE as u64 / 8).map(move |i| first.wrapping_add(i.wrapping_mul(STEP)))
}

fn fill(piece: &mut [u8], at: u64) {
    piece.chunks_exact_mut(8).zip(words(at)).for_each(|(out, word)| out.copy_from_slice(&word.to_le_bytes()));
}

fn is_right(piece: &[u8], at: u64) -> bool {
    let wrong = piece.as_chunks().0.iter().zip(words(at));
    wrong.fold(0, |all, (bytes, word)| all | (u64::from_le_bytes(*bytes) ^ word)) == 0
}

/// Writes everything, ends the stream, and waits for the receiver's word that it has it.
pub(crate) async fn send(
    total: u64,
    to: &mut (impl AsyncWrite + Unpin),
    from: &mut (impl AsyncRead + Unpin),
) -> Result<Usage> {
    let (meter, mut piece) = (Meter::start(), vec![0; PIECE]);
    for at in (0..total).step_by(PIECE) {
        fill(&mut piece, at);
        to.write_all(&piece).await?;
    }
    to.shutdown().await?;
    if from.read_u64_le().await? != total {
        return Err("the receiver has something else than what was sent".into());
    }
    Ok(meter.stop())
}

/// Reads everything, looks at every byte, and says so.
pub(crate) async fn receive(
    total: u64,
    to: &mut (impl AsyncWrite + Unpin),
    from: &mut (impl AsyncRead + Unpin),
) -> Result<Usage> {
    let (meter, mut piece) = (Meter::start(), vec![0; PIECE]);
    for at in (0..total).step_by(PIECE) {
        from.read_exact(&mut piece).await?;
        if !is_right(&piece, at) {
            return Err(format!("wrong bytes between {at} and {}", at + PIECE as u64).into());
        }
    }
    if from.read(&mut piece).await? != 0 {
        return Err("more came than was sent".into());
    }
    let usage = meter.stop();
    to.write_u64_le(total).await?;
    to.shutdown().await?;
    Ok(usage)
}
