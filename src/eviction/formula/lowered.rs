//! Formulas as plain numbers, for kernels that interpret them. `lm/gpu/kernels/params.h` has the same layout and order.

use super::program::{Instruction, Operand, Operation, compile};
use super::words::{Function, Word};
use crate::eviction::entries::Heads;
use crate::eviction::scoring::Score;
use crate::eviction::settings::Scope;

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Attention,
    Logit,
    Age,
    Position,
    KeyNorm,
    ValueNorm,
    ValueNorm2,
    OutputShift,
    KeySimilarity,
    Random,
    Gumbel,
    SummedAttention,
    PooledAttention,
    Add,
    Multiply,
    Divide,
    Less,
    AtMost,
    Equal,
    Unequal,
    If,
    Min,
    Max,
    Abs,
    Log,
    Exp,
    Sqrt,
    KeepSum,
    KeepMean,
    KeepStd,
    KeepEma,
    KeepPeak,
    KeepRecentPeak,
    KeepWindow,
    Rank,
    Softmax,
    Share,
    PooledMean,
    PooledMax,
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
    code: Code,
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
    pad: i32,
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

/// A score of a cache with `size` entries; `None` if it needs the future. Scores that are a priority have no instructions.
pub fn lower(score: Score, size: usize, heads: Heads, scope: Scope) -> Option<LoweredScore> {
    let summed = LoweredInstruction { code: Code::SummedAttention, result: 0, ..blank() };
    let one_list = LoweredScore { results: 1, ..LoweredScore::default() };
    Some(match score {
        Score::KeyNorm | Score::Random => LoweredScore::default(),
        Score::Recency => {
            let program = vec![LoweredInstruction { code: Code::Position, result: 0, ..blank() }];
            LoweredScore { program, ..one_list }
        }
        Score::LastAttention => LoweredScore { program: vec![summed], ..one_list },
        Score::AccumulatedAttention => {
            let mut sum = LoweredInstruction { code: Code::KeepSum, always: 1, kept: 0, ..blank() };
            (sum.from[0], sum.list[0]) = (From::Results, 0);
            LoweredScore { program: vec![LoweredInstruction { always: 1, ..summed }, sum], kept: 1, ..one_list }
        }
        Score::Formula(formula) => {
            let program = compile(&formula.0.expr, size);
            let mut lowered = LoweredScore::default();
            for instruction in &program {
                lowered.push(code(instruction.operation)?, instruction, &program, heads, scope);
            }
            lowered
        }
        Score::Custom(_) => return None,
    })
}

fn blank() -> LoweredInstruction {
    LoweredInstruction {
        code: Code::Add,
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
        pad: 0,
    }
}

/// Whether the value of an instruction is what it keeps.
fn value_is_kept(operation: Operation) -> bool {
    match operation {
        Operation::Word(word) => {
            matches!(word, Word::KeyNorm | Word::ValueNorm | Word::ValueNorm2 | Word::Random)
        }
        Operation::Memory(Function::Sum | Function::Ema, _) => true,
        Operation::Memory(Function::Peak, steps) => steps == 0.0,
        _ => false,
    }
}

impl LoweredScore {
    /// Adds an instruction of a program whose earlier ones are there.
    fn push(
        &mut self,
        code: Code,
        instruction: &Instruction,
        program: &[Instruction],
        heads: Heads,
        scope: Scope,
    ) {
        let group = heads.of_group(scope, 0).len();
        let (members, per_kv) = (if instruction.per_head { group } else { 1 }, heads.per_kv_head());
        let Instruction { operation, arguments, always, .. } = instruction;
        let mut lowered =
            LoweredInstruction { code, members: members as i32, always: i32::from(*always), ..blank() };
        let (kept, totals) = match *operation {
            Operation::Word(Word::KeyNorm | Word::ValueNorm | Word::ValueNorm2) => (group / per_kv, 0),
            Operation::Word(Word::Random) => (1, 0),
            Operation::Memory(Function::Std, _) => (2 * members, 0),
            Operation::Memory(Function::Window, steps) => (steps as usize * members, members),
            Operation::Memory(Function::Peak, steps) if steps > 0.0 => (steps as usize * members, 0),
            Operation::Memory(..) => (members, 0),
            _ => (0, 0),
        };
        let results = match operation {
            _ if value_is_kept(*operation) => 0,
            Operation::Word(Word::KeySimilarity) => group / per_kv,
            _ => members,
        };
        if *operation == Operation::Word(Word::KeySimilarity) {
            lowered.members = results as i32;
        }
        if let Operation::Memory(_, number) = operation {
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
                    let is_kept = value_is_kept(source.operation);
                    lowered.from[which] = if is_kept { From::Kept } else { From::Results };
                    lowered.list[which] = if is_kept { made.kept } else { made.result };
                    lowered.sharing[which] = match source.operation {
                        _ if !source.per_head => group,
                        Operation::Word(
                            Word::KeyNorm | Word::ValueNorm | Word::ValueNorm2 | Word::KeySimilarity,
                        ) => per_kv,
                        _ => 1,
                    } as i32;
                }
            }
        }
        self.program.push(lowered);
    }
}

/// `None` for what kernels do not know.
fn code(operation: Operation) -> Option<Code> {
    Some(match operation {
        Operation::Word(word) => match word {
            Word::Attention => Code::Attention,
            Word::Logit => Code::Logit,
            Word::Age => Code::Age,
            Word::Position => Code::Position,
            Word::KeyNorm => Code::KeyNorm,
            Word::ValueNorm => Code::ValueNorm,
            Word::ValueNorm2 => Code::ValueNorm2,
            Word::OutputShift => Code::OutputShift,
            Word::KeySimilarity => Code::KeySimilarity,
            Word::Random => Code::Random,
            Word::Gumbel => Code::Gumbel,
            Word::FutureAttention | Word::Size => return None,
        },
        Operation::PooledAttention => Code::PooledAttention,
        Operation::Memory(function, number) => match function {
            Function::Sum => Code::KeepSum,
            Function::Mean => Code::KeepMean,
            Function::Std => Code::KeepStd,
            Function::Ema => Code::KeepEma,
            Function::Peak if number == 0.0 => Code::KeepPeak,
            Function::Peak => Code::KeepRecentPeak,
            Function::Window => Code::KeepWindow,
            _ => return None,
        },
        Operation::Function(function) => match function {
            Function::Add => Code::Add,
            Function::Multiply => Code::Multiply,
            Function::Divide => Code::Divide,
            Function::Less => Code::Less,
            Function::AtMost => Code::AtMost,
            Function::Equal => Code::Equal,
            Function::Unequal => Code::Unequal,
            Function::If => Code::If,
            Function::Min => Code::Min,
            Function::Max => Code::Max,
            Function::Abs => Code::Abs,
            Function::Log => Code::Log,
            Function::Exp => Code::Exp,
            Function::Sqrt => Code::Sqrt,
            Function::Rank => Code::Rank,
            Function::Softmax => Code::Softmax,
            Function::Share => Code::Share,
            Function::PooledMean => Code::PooledMean,
            Function::PooledMax => Code::PooledMax,
            _ => return None,
        },
    })
}
