//! Runs a formula's instructions for every row of a block, and keeps what they remember.

use std::ops::{AddAssign, Range};
use std::sync::Arc;

use super::Formula;
use super::canonical::Expr;
use super::loops::{Column, Entries, Kept, Step, elementwise, highest_if_nan, near_entries, over_entries, pool};
use super::program::{Columns, Instruction, Operand, Operation, compile};
use super::statistics::{self, QueryStatistics};
use super::words::{Function, Word};
use crate::eviction::block::{Attention, NewEntries, Vectors};
use crate::eviction::future::RecordedAttention;
use crate::eviction::score::{mix, uniform};
use crate::eviction::settings::{Heads, Scope};
use crate::vector;

/// The scores of a cache's entries under a formula.
#[derive(Clone, Debug)]
pub(in crate::eviction) struct Scorer {
    program: Vec<Instruction>,
    heads: Heads,
    scope: Scope,
    /// The cache size.
    size: usize,
    salt: u64,
    layer: usize,
    groups: Vec<Group>,
    /// The attention of the whole text, if the formula has it, and what later queries pay: (groups)(tokens)
    future: Option<(Arc<RecordedAttention>, Vec<Vec<f64>>)>,
    /// Logits of the row before they became attention, if the formula has them: (heads)(stride)
    logits: Vec<Vec<f32>>,
    /// The queries so far, if the formula expects others: (heads)
    queries: Vec<QueryStatistics>,
}

/// Scores of entries that could have left when others did, and how many of them were not numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScoreCount {
    pub all: u64,
    pub no_numbers: u64,
}

impl ScoreCount {
    /// Returns the count, unless no score was a number.
    ///
    /// # Errors
    /// A score that never was one.
    pub fn checked(self) -> anyhow::Result<ScoreCount> {
        let ScoreCount { all, no_numbers } = self;
        anyhow::ensure!(
            all == 0 || no_numbers < all,
            "the policy's score is not a number for any of the {all} entries that could leave\n\
             hint: change its formula: a logarithm or root of negative numbers, for example, gives none"
        );
        Ok(self)
    }
}

impl AddAssign for ScoreCount {
    fn add_assign(&mut self, other: ScoreCount) {
        self.all += other.all;
        self.no_numbers += other.no_numbers;
    }
}

/// What belongs to a decision group, by instruction.
#[derive(Clone, Debug)]
struct Group {
    kept: Vec<Kept>,
    /// Columns of the row: (heads of the group, key-value heads of the group, or 1)(stride)
    results: Vec<Vec<Vec<f32>>>,
}

/// A row of a block, after its softmax.
pub(in crate::eviction) struct Row<'a> {
    pub attention: &'a Attention<'a>,
    pub vectors: &'a dyn Vectors,
    /// Position of its token.
    pub step: usize,
    /// Whether scores are needed, and not only what is remembered.
    pub decides: bool,
}

impl Scorer {
    /// With `sizes_differ`, groups will have other sizes ([`resize`](Self::resize)). The scores of the last row that decided stay with the
    /// entries.
    pub fn new(
        formula: Formula,
        size: usize,
        sizes_differ: bool,
        heads: Heads,
        scope: Scope,
        salt: u64,
    ) -> Scorer {
        let program = compile(&formula.0.expr, size, sizes_differ);
        let (members, per_kv) = (heads.of_group(scope, 0).len(), heads.per_kv_head());
        let kept = |instruction: &Instruction| {
            let Columns { kept, totals, .. } = instruction.columns(members, per_kv);
            let is_peak = matches!(instruction.operation, Operation::Function(Function::Peak, _));
            let start = if is_peak { f32::NAN } else { 0.0 };
            Kept { columns: vec![Vec::new(); kept], totals: vec![Vec::new(); totals], start }
        };
        let results = |instruction: &Instruction| vec![Vec::new(); instruction.columns(members, per_kv).results];
        let group =
            Group { kept: program.iter().map(kept).collect(), results: program.iter().map(results).collect() };
        let logits = if program.iter().any(|one| one.uses(Word::Logit)) { heads.heads } else { 0 };
        let queries = if program.iter().any(Instruction::expects) { heads.heads } else { 0 };
        let groups = vec![group; heads.groups(scope)];
        let (logits, queries) = (vec![Vec::new(); logits], vec![QueryStatistics::default(); queries]);
        Scorer { program, heads, scope, size, salt, layer: 0, groups, future: None, logits, queries }
    }

    pub fn set_layer(&mut self, layer: usize) {
        self.layer = layer;
    }

    /// Gives the scorer the attention of the whole text.
    pub fn set_future(&mut self, future: Arc<RecordedAttention>) {
        let later = (0..self.groups.len()).map(|group| future.later(group)).collect();
        self.future = Some((future, later));
    }

    /// Makes room for rows that are `stride` long.
    pub fn make_room(&mut self, stride: usize) {
        for group in &mut self.groups {
            for (instruction, kept) in self.program.iter().zip(&mut group.kept) {
                // The future of new entries is known, and is added when they join.
                let is_known = instruction.uses(Word::FutureAttention) && self.future.is_some();
                if !is_known && !instruction.operation.is_fixed() {
                    kept.columns.iter_mut().for_each(|column| column.resize(stride, kept.start));
                    kept.totals.iter_mut().for_each(|column| column.resize(stride, 0.0));
                }
            }
            group.results.iter_mut().flatten().for_each(|column| column.resize(stride, 0.0));
        }
    }

    /// Takes what is known of a block's `rows` new entries, after `seen` others.
    pub fn join(&mut self, seen: usize, rows: usize, new: &NewEntries<'_>) {
        let kv_members = self.heads.kv_heads / self.groups.len();
        for (index, group) in self.groups.iter_mut().enumerate() {
            for (instruction, kept) in self.program.iter().zip(&mut group.kept) {
                if let (true, Some((_, later))) = (instruction.uses(Word::FutureAttention), &self.future) {
                    kept.totals[0].extend(&later[index][seen..seen + rows]);
                } else if instruction.operation.is_fixed() {
                    let first_head = self.heads.of_group(self.scope, index).start;
                    for (member, column) in kept.columns.iter_mut().enumerate() {
                        column.extend((0..rows).map(|row| {
                            let vector = row * self.heads.kv_heads + index * kv_members + member;
                            match instruction.operation {
                                Operation::Word(Word::KeyNorm) => norm2(new.of(new.keys, vector)),
                                Operation::Word(Word::ValueNorm) => {
                                    new.of(new.values, vector).iter().map(|x| x.abs()).sum()
                                }
                                Operation::Word(Word::ValueNorm2) => norm2(new.of(new.values, vector)),
                                // Until the prompt is read again.
                                Operation::Word(Word::RereadAttention) => 0.0,
                                Operation::Word(Word::ProjectedValueNorm) => new.projected_norms.get(vector).copied().unwrap_or(f32::NAN),
                                Operation::Dot { vectors, .. } => {
                                    let head = first_head + member;
                                    let of_head =
                                        vectors.and_then(|all| all.of_head(self.layer, head, self.heads.heads));
                                    let key = row * self.heads.kv_heads + head / self.heads.per_kv_head();
                                    of_head.map_or(f32::NAN, |own| vector::dot(own, new.of(new.keys, key)))
                                }
                                Operation::TokenIn(texts) => {
                                    let own = new.token_texts.get(row);
                                    let is_own = |text: &Expr| {
                                        matches!((text, own), (Expr::Text(text), Some(own)) if **text == **own)
                                    };
                                    if texts.iter().any(is_own) { 1.0 } else { 0.0 }
                                }
                                _ => uniform(self.salt, index as u64, (seen + row) as u64) as f32,
                            }
                        }));
                    }
                }
            }
        }
    }

    /// Whether scores depend on the mean of all queries.
    pub fn expects(&self) -> bool {
        !self.queries.is_empty()
    }

    /// Takes the query of the token `step` in each head, before rotation, if it expects others.
    pub fn take_query<'a>(&mut self, step: usize, scale: f32, of_head: impl Fn(usize) -> &'a [f32]) {
        self.queries.iter_mut().enumerate().for_each(|(head, own)| own.add(step, of_head(head), scale));
    }

    /// Whether logits have to be copied before the softmax takes their place.
    pub fn wants_logits(&self) -> bool {
        !self.logits.is_empty()
    }

    pub fn take_logits(&mut self, head: usize, logits: &[f32]) {
        self.logits[head].clear();
        self.logits[head].extend_from_slice(logits);
    }

    /// Computes a row for one group, after its [query](Self::take_query). It is long because its one `match` has an arm for each kind of operation.
    pub fn run(&mut self, row: &Row<'_>, group: usize, entries: &Entries<'_>) {
        let per_kv = self.heads.per_kv_head();
        let heads = self.heads.of_group(self.scope, group);
        let Group { kept, results } = &mut self.groups[group];
        for (index, instruction) in self.program.iter().enumerate() {
            if !instruction.always && !row.decides {
                continue;
            }
            let (results_before, results) = results.split_at_mut(index);
            let (kept_before, kept) = kept.split_at_mut(index);
            let computed = Computed {
                program: &self.program,
                results: results_before,
                kept: kept_before,
                heads: heads.len(),
                per_kv,
            };
            for (member, out) in results[0].iter_mut().enumerate() {
                let (mask, n) = (entries.mask, entries.mask.len());
                let out = &mut out[..n];
                let (head, kv_head) = (heads.start + member, heads.start / per_kv + member);
                match instruction.operation {
                    Operation::Word(word) => match word {
                        Word::Size => out.fill(self.size as f32),
                        Word::Logit => out.copy_from_slice(&self.logits[head][..out.len()]),
                        Word::FutureAttention => {
                            let Some((future, _)) = &self.future else { continue };
                            let left = kept[0].totals[0].iter_mut().zip(entries.positions);
                            for (out, (left, position)) in out.iter_mut().zip(left) {
                                let token = *position as usize;
                                if token < row.step {
                                    *left -= future.paid(group, row.step, token);
                                }
                                *out = *left as f32;
                            }
                        }
                        Word::Gumbel => gumbel(self.salt, head, row.step, entries.positions, out),
                        Word::KeySimilarity => row.vectors.key_similarity(kv_head, entries.mask, out),
                        Word::KeyRedundancy => {
                            statistics::redundancy(&row.vectors.keys(kv_head, mask), mask, out);
                        }
                        Word::Attention => {
                            let (weights, scale) = row.attention.of_head(head);
                            let [weights, scale] = [Column::Own(&weights[..n]), Column::Same(scale)];
                            elementwise(Function::Multiply, [weights, scale, Column::Same(0.0)], out);
                        }
                        Word::OutputShift => {
                            let (weights, scale) = row.attention.of_head(head);
                            row.vectors.output_shift(head, &weights[..n], scale, out);
                        }
                        Word::Age => {
                            for (age, position) in out.iter_mut().zip(entries.positions) {
                                *age = (row.step - *position as usize) as f32;
                            }
                        }
                        Word::Position => {
                            for (to, position) in out.iter_mut().zip(entries.positions) {
                                *to = *position as f32;
                            }
                        }
                        // Known since the entry joined.
                        _ => {}
                    },
                    Operation::PooledAttention => {
                        out.fill(0.0);
                        for head in heads.clone() {
                            let (weights, scale) = row.attention.of_head(head);
                            vector::add_scaled(out, &weights[..out.len()], scale / heads.len() as f32);
                        }
                    }
                    Operation::Function(function, number) if function.remembers() => {
                        let step = Step { step: row.step, positions: entries.positions, member };
                        let argument = computed.column(instruction.arguments[0], member, n);
                        kept[0].remember(function, number, step, argument, out);
                    }
                    Operation::Function(Function::LagScore, tokens) => {
                        let keys = row.vectors.keys(kv_head, mask);
                        let values = row.vectors.values(kv_head, mask.len());
                        statistics::lag_score(tokens as usize, [&keys, &values], entries, out);
                    }
                    Operation::Function(function, positions) if instruction.expects() => {
                        let keys = row.vectors.keys(head / per_kv, mask);
                        let positions = positions as usize;
                        let rotation = row.vectors.mean_rotation(head / per_kv, mask, row.step, positions);
                        let covariance = function == Function::ExpectedAttention;
                        self.queries[head].expect(&rotation, &keys, covariance, entries, out);
                    }
                    Operation::Dot { vectors, .. } => {
                        let of_head = vectors.and_then(|all| all.of_head(self.layer, head, self.heads.heads));
                        let Some(own) = of_head else { continue };
                        let keys = row.vectors.keys(head / per_kv, mask);
                        for (out, key) in out.iter_mut().zip(keys.chunks_exact(own.len())) {
                            *out = vector::dot(own, key);
                        }
                    }
                    _ => computed.combine(instruction, member, entries, out),
                }
            }
        }
    }

    /// Whether scores need what [`read_again`](Self::read_again) is given.
    pub fn wants_reread(&self) -> bool {
        self.program.iter().any(|one| one.uses(Word::RereadAttention))
    }

    /// Takes the attention that key-value heads paid to a group's entries in a second reading: (kv_heads)(entries)
    pub fn take_second_reading(&mut self, reread: &[Vec<f32>], group: usize) {
        let first = self.heads.of_group(self.scope, group).start / self.heads.per_kv_head();
        for (instruction, kept) in self.program.iter().zip(&mut self.groups[group].kept) {
            if instruction.uses(Word::RereadAttention) {
                for (member, column) in kept.columns.iter_mut().enumerate() {
                    column[..reread[first + member].len()].copy_from_slice(&reread[first + member]);
                }
            }
        }
    }

    /// Computes the scores of the last row again, now that a second reading is known.
    pub fn score_again(&mut self, group: usize, entries: &Entries<'_>) {
        self.compute_again(Word::RereadAttention, group, entries);
    }

    /// Computes the scores of the last row again for a group that will hold `size` entries.
    pub fn resize(&mut self, size: usize, group: usize, entries: &Entries<'_>) {
        for (instruction, results) in self.program.iter().zip(&mut self.groups[group].results) {
            if instruction.uses(Word::Size) {
                results[0][..entries.mask.len()].fill(size as f32);
            }
        }
        self.compute_again(Word::Size, group, entries);
    }

    /// Computes what depends on a word again.
    fn compute_again(&mut self, word: Word, group: usize, entries: &Entries<'_>) {
        let (heads, per_kv) = (self.heads.of_group(self.scope, group), self.heads.per_kv_head());
        let Group { kept, results } = &mut self.groups[group];
        let mut changed = vec![false; self.program.len()];
        for (index, instruction) in self.program.iter().enumerate() {
            let depends = |argument: &Operand| matches!(argument, Operand::Result(before) if changed[*before]);
            changed[index] = instruction.uses(word) || instruction.arguments.iter().any(depends);
            if !changed[index] || instruction.uses(word) {
                continue;
            }
            let (results_before, results) = results.split_at_mut(index);
            let (program, heads_of, kept) = (&self.program, heads.len(), &kept[..index]);
            let computed = Computed { program, results: results_before, kept, heads: heads_of, per_kv };
            for (member, out) in results[0].iter_mut().enumerate() {
                computed.combine(instruction, member, entries, &mut out[..entries.mask.len()]);
            }
        }
    }

    /// The scores of some columns at the last row that decided. What is not a number counts as the highest.
    pub fn scores(&self, group: usize, columns: Range<usize>) -> impl Iterator<Item = f32> {
        self.own_scores(group, columns).iter().map(|score| highest_if_nan(*score).max(f32::MIN))
    }

    /// How many of the entries that may leave have scores at that row, and how many of these are not numbers.
    pub fn count(&self, group: usize, entries: &Entries<'_>) -> ScoreCount {
        let scores = self.own_scores(group, entries.unprotected.clone());
        let living =
            scores.iter().zip(&entries.mask[entries.unprotected.clone()]).filter(|(_, mask)| **mask == 0.0);
        let (mut all, mut no_numbers) = (0, 0);
        living.for_each(|(score, _)| {
            all += 1;
            no_numbers += u64::from(score.is_nan());
        });
        ScoreCount { all, no_numbers }
    }

    fn own_scores(&self, group: usize, columns: Range<usize>) -> &[f32] {
        let Group { kept, results } = &self.groups[group];
        let computed = Computed {
            program: &self.program,
            results,
            kept,
            heads: self.heads.of_group(self.scope, group).len(),
            per_kv: self.heads.per_kv_head(),
        };
        let column = computed.column(Operand::Result(self.program.len() - 1), 0, columns.end);
        match column {
            Column::Own(scores) => &scores[columns],
            Column::Same(_) => &[],
        }
    }

    /// Keeps the columns `kept` of every group, after `columns` of the block: (groups)(entries), ascending.
    pub fn keep(&mut self, kept: &[Vec<u32>]) {
        for (group, kept) in self.groups.iter_mut().zip(kept) {
            for own in &mut group.kept {
                own.columns.iter_mut().for_each(|column| keep(column, kept));
                own.totals.iter_mut().for_each(|column| keep(column, kept));
            }
            group.results.iter_mut().flatten().for_each(|column| keep(column, kept));
        }
    }

    /// Gives back memory of columns that have left.
    pub fn shrink(&mut self) {
        for Group { kept, results } in &mut self.groups {
            for own in kept {
                own.columns.iter_mut().for_each(Vec::shrink_to_fit);
                own.totals.iter_mut().for_each(Vec::shrink_to_fit);
            }
            results.iter_mut().flatten().for_each(Vec::shrink_to_fit);
        }
    }

    /// Forgets columns beyond those of the block: (groups)
    pub fn truncate(&mut self, columns: &[usize]) {
        for (group, columns) in self.groups.iter_mut().zip(columns) {
            for own in &mut group.kept {
                own.columns.iter_mut().for_each(|column| column.truncate(*columns));
                own.totals.iter_mut().for_each(|column| column.truncate(*columns));
            }
        }
    }
}

/// What the instructions before one have computed.
struct Computed<'a> {
    program: &'a [Instruction],
    results: &'a [Vec<Vec<f32>>],
    kept: &'a [Kept],
    /// Query heads of a decision, and of a key-value head.
    heads: usize,
    per_kv: usize,
}

impl<'a> Computed<'a> {
    /// The first `n` values of an argument for a head of the group.
    fn column(&self, argument: Operand, member: usize, n: usize) -> Column<'a> {
        let index = match argument {
            Operand::Number(number) => return Column::Same(number),
            Operand::Result(index) => index,
        };
        let instruction = &self.program[index];
        let column = member / instruction.sharing(self.heads, self.per_kv);
        let columns = if instruction.value_is_kept() { &self.kept[index].columns } else { &self.results[index] };
        Column::Own(&columns[column][..n])
    }

    /// Computes an instruction for a head of the group from its arguments, and from nothing else.
    fn combine(&self, instruction: &Instruction, member: usize, entries: &Entries<'_>, out: &mut [f32]) {
        let n = out.len();
        let argument = |which: usize| match instruction.arguments.get(which) {
            Some(argument) => self.column(*argument, member, n),
            None => Column::Same(0.0),
        };
        match instruction.operation {
            Operation::Function(function @ (Function::PooledMean | Function::PooledMax), _) => {
                let columns = (0..self.heads).map(|member| self.column(instruction.arguments[0], member, n));
                pool(columns, function == Function::PooledMean, out);
            }
            Operation::Function(function @ (Function::Rank | Function::Softmax | Function::Share), _) => {
                over_entries(function, argument(0), entries, out);
            }
            Operation::Function(function @ (Function::Smooth | Function::SmoothMax | Function::Block), number) => {
                near_entries(function, number as usize, argument(0), entries, out);
            }
            Operation::Function(function, _) => {
                elementwise(function, [argument(0), argument(1), argument(2)], out)
            }
            // Computed elsewhere.
            _ => {}
        }
    }
}

fn norm2(vector: &[f32]) -> f32 {
    vector.iter().map(|x| x * x).sum::<f32>().sqrt()
}

/// Standard Gumbel noise that depends on its arguments alone.
pub(in crate::eviction) fn gumbel(salt: u64, head: usize, step: usize, positions: &[u32], out: &mut [f32]) {
    let of_step = mix(mix(mix(salt ^ GUMBEL) ^ head as u64) ^ step as u64);
    for (noise, position) in out.iter_mut().zip(positions) {
        let bits = mix(of_step ^ u64::from(*position));
        let uniform = ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        *noise = -(-uniform.ln()).ln() as f32;
    }
}

/// Makes these draws others than those of `random`.
const GUMBEL: u64 = 0x6775_6d62_656c;

/// Keeps the elements at the ascending indices `kept`.
pub(in crate::eviction) fn keep<T: Copy>(values: &mut Vec<T>, kept: &[u32]) {
    for (to, &from) in kept.iter().enumerate() {
        values[to] = values[from as usize];
    }
    values.truncate(kept.len());
}
