//! Formulas as plain numbers, for kernels that interpret them. `lm/gpu/kernels/params.h` has the same layout and order.

use super::program::{Columns, Instruction, Operand, Operation, compile};
use super::words::{Function, Word};
use crate::eviction::method::Method;
use crate::eviction::score::Score;
use crate::eviction::settings::Heads;
use crate::eviction::settings::Scope;

/// The last word and the last function that kernels know, in the order of their tables. What comes after them is for the host alone.
pub(super) const LAST_WORD: Word = Word::Size;
pub(super) const LAST_FUNCTION: Function = Function::PooledMax;

/// What only kernels do: attention, added up over the query heads of the decision, and its mean. Their numbers come after those of words
/// and functions.
const SUMMED_ATTENTION: i32 = of_function(LAST_FUNCTION) + 1;
const POOLED_ATTENTION: i32 = SUMMED_ATTENTION + 1;

const fn of_function(function: Function) -> i32 {
    LAST_WORD as i32 + 1 + function as i32
}

/// Where an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum From {
    Constant,
    Results,
    Kept,
}

/// An instruction. Lists have a number for every column of a cache; a list of -1 is none.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LoweredInstruction {
    operation: i32,
    members: i32,
    always: i32,
    result: i32,
    kept: i32,
    totals: i32,
    number: f32,
    from: [From; 3],
    list: [i32; 3],
    sharing: [i32; 3],
    constant: [f32; 3],
}

/// A score as instructions, and how many lists they need for each decision.
#[derive(Clone, Debug, Default)]
pub struct LoweredScore {
    pub program: Vec<LoweredInstruction>,
    pub results: usize,
    /// Lists of f32 and of f64 that stay from row to row.
    pub kept: usize,
    pub totals: usize,
}

/// A score of a cache with `size` entries; `None` if it has a word or a function that kernels do not know, such as those of the
/// future, of neighbours, or of queries. Scores that are a priority have no instructions.
pub fn lower(score: Score, size: usize, heads: Heads, scope: Scope) -> Option<LoweredScore> {
    let summed = LoweredInstruction { operation: SUMMED_ATTENTION, result: 0, ..blank() };
    let one_list = LoweredScore { results: 1, ..LoweredScore::default() };
    let Score::Formula(formula) = score else { return None };
    Some(match formula.method() {
        Method::NormPriority | Method::RandomPriority => LoweredScore::default(),
        Method::NewestAttention => LoweredScore { program: vec![summed], ..one_list },
        Method::SummedAttention => {
            let mut sum =
                LoweredInstruction { operation: of_function(Function::Sum), always: 1, kept: 0, ..blank() };
            (sum.from[0], sum.list[0]) = (From::Results, 0);
            LoweredScore { program: vec![LoweredInstruction { always: 1, ..summed }, sum], kept: 1, ..one_list }
        }
        Method::Order | Method::Instructions | Method::Function(_) => {
            let program = compile(&formula.0.expr, size, false);
            let mut lowered = LoweredScore::default();
            for instruction in &program {
                lowered.push(instruction, &program, heads, scope)?;
            }
            lowered
        }
    })
}

fn blank() -> LoweredInstruction {
    LoweredInstruction {
        operation: of_function(Function::Add),
        members: 1,
        always: 0,
        result: -1,
        kept: -1,
        totals: -1,
        number: 0.0,
        from: [From::Constant; 3],
        list: [0; 3],
        sharing: [1; 3],
        constant: [0.0; 3],
    }
}

impl LoweredScore {
    /// Whether something is kept of entries or rows for later ones, for which every row has to be scanned.
    pub fn remembers(&self) -> bool {
        self.kept > 0 || self.program.iter().any(|instruction| instruction.always != 0)
    }

    /// Whether an instruction takes attention, which is that to the entries in the cache.
    pub fn reads_attention(&self) -> bool {
        let words = [Word::Attention as i32, Word::OutputShift as i32, SUMMED_ATTENTION, POOLED_ATTENTION];
        self.program.iter().any(|instruction| words.contains(&instruction.operation))
    }

    /// Whether an instruction takes logits.
    pub fn has_logits(&self) -> bool {
        self.program.iter().any(|instruction| instruction.operation == Word::Logit as i32)
    }

    /// Adds an instruction of a program whose earlier ones are there; `None` if kernels do not know it.
    fn push(
        &mut self,
        instruction: &Instruction,
        program: &[Instruction],
        heads: Heads,
        scope: Scope,
    ) -> Option<()> {
        let (group, per_kv) = (heads.of_group(scope, 0).len(), heads.per_kv_head());
        let Instruction { operation, arguments, always, .. } = instruction;
        let Columns { results, kept, totals } = instruction.columns(group, per_kv);
        let members = if instruction.per_head { group } else { 1 };
        let mut lowered = LoweredInstruction {
            operation: match *operation {
                Operation::Word(Word::FutureAttention) => return None,
                Operation::Word(word) if word as usize <= LAST_WORD as usize => word as i32,
                Operation::PooledAttention => POOLED_ATTENTION,
                Operation::Function(function, _) if function as usize <= LAST_FUNCTION as usize => {
                    of_function(function)
                }
                _ => return None,
            },
            members: if instruction.uses(Word::KeySimilarity) { results } else { members } as i32,
            always: i32::from(*always),
            ..blank()
        };
        let results = if instruction.value_is_kept() { 0 } else { results };
        if let Operation::Function(_, number) = operation {
            lowered.number = *number;
        }
        let mut claim = |lists: usize, of: fn(&mut Self) -> &mut usize| {
            let first = *of(self);
            *of(self) += lists;
            if lists > 0 { first as i32 } else { -1 }
        };
        lowered.kept = claim(kept, |score| &mut score.kept);
        lowered.totals = claim(totals, |score| &mut score.totals);
        lowered.result = claim(results, |score| &mut score.results);
        for (which, argument) in arguments.iter().enumerate() {
            match *argument {
                Operand::Number(number) => lowered.constant[which] = number,
                Operand::Result(index) => {
                    let (made, source) = (self.program[index], &program[index]);
                    let is_kept = source.value_is_kept();
                    lowered.from[which] = if is_kept { From::Kept } else { From::Results };
                    lowered.list[which] = if is_kept { made.kept } else { made.result };
                    lowered.sharing[which] = source.sharing(group, per_kv) as i32;
                }
            }
        }
        self.program.push(lowered);
        Some(())
    }
}
