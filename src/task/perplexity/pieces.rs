//! The paper's baseline, `truncate`: a text in pieces, each read with an empty, unbounded cache.

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// BOS, if the text begins with it, then tokens of the text. The first token has nothing before it and is not scored.
    pub tokens: Vec<u32>,
    /// Token i of the piece is token `start + i` of the text, except BOS.
    pub start: usize,
}

/// The pieces of a text, of at most `size` tokens each. If `bos`, the first of the `tokens` is BOS; every piece then begins
/// with it, so that every token of the text is scored. There is at least one piece; `size` must be at least 2.
pub fn pieces(tokens: &[u32], bos: bool, size: usize) -> impl Iterator<Item = Piece> {
    let (lead, text) = tokens.split_at(usize::from(bos));
    let room = size.saturating_sub(lead.len()).max(1);
    (0..text.len().div_ceil(room).max(1)).map(move |index| {
        let start = index * room;
        let piece = &text[start..text.len().min(start + room)];
        Piece { tokens: [lead, piece].concat(), start }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tokens: &[u32], bos: bool, size: usize) -> Vec<(usize, Vec<u32>)> {
        pieces(tokens, bos, size).map(|piece| (piece.start, piece.tokens)).collect()
    }

    #[test]
    fn pieces_by_hand() {
        let text = [9, 1, 2, 3, 4, 5];
        assert_eq!(of(&text, true, 3), [(0, vec![9, 1, 2]), (2, vec![9, 3, 4]), (4, vec![9, 5])]);
        assert_eq!(of(&text, false, 4), [(0, vec![9, 1, 2, 3]), (4, vec![4, 5])]);
        assert_eq!(of(&text, false, 5)[1], (5, vec![5]), "a last piece of one token has nothing to score");
        for bos in [false, true] {
            assert_eq!(of(&text, bos, 6), [(0, text.to_vec())]);
            assert_eq!(of(&[9], bos, 2), [(0, vec![9])]);
        }
    }
}
