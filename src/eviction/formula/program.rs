//! A formula as a list of instructions, each of which makes columns of others. Equal parts are computed once.

use super::canonical::Expr;
use super::words::{Function, Word};

/// Where an instruction's arguments come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Operand {
    /// The result of an earlier instruction.
    Result(usize),
    Number(f32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Operation {
    Word(Word),
    /// Attention, averaged over the heads of the group.
    PooledAttention,
    Function(Function),
    /// A function that remembers, with its number: a factor, or a number of steps (0: all).
    Memory(Function, f32),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Instruction {
    pub operation: Operation,
    pub arguments: Vec<Operand>,
    /// Whether query heads have columns of their own.
    pub per_head: bool,
    /// Whether it is needed at every step, because something later remembers it.
    pub always: bool,
}

impl Instruction {
    pub fn uses(&self, word: Word) -> bool {
        self.operation == Operation::Word(word)
    }
}

/// The instructions of a formula at a cache size. The last one's columns are the score, the same for all heads.
pub(super) fn compile(expr: &Expr, size: usize) -> Vec<Instruction> {
    let mut program = Vec::new();
    compile_into(expr, size, &mut program);
    for index in (0..program.len()).rev() {
        let instruction: &Instruction = &program[index];
        let remembers = matches!(instruction.operation, Operation::Memory(..));
        if !instruction.always && !remembers && !instruction.uses(Word::FutureAttention) {
            continue;
        }
        let arguments = instruction.arguments.clone();
        program[index].always = true;
        for argument in arguments {
            if let Operand::Result(argument) = argument {
                program[argument].always = true;
            }
        }
    }
    program
}

/// The value of what is the same for all entries.
fn constant(expr: &Expr, size: usize) -> Option<f64> {
    if !expr.is_constant() {
        return None;
    }
    let known = |function: Function, values: &[f64]| match (function, values) {
        (Function::Add, values) => values.iter().sum(),
        (Function::Multiply, values) => values.iter().product(),
        (Function::Divide, [a, b]) => a / b,
        (Function::Less, [a, b]) => f64::from(u8::from(a < b)),
        (Function::AtMost, [a, b]) => f64::from(u8::from(a <= b)),
        (Function::Equal, [a, b]) => f64::from(u8::from(a == b)),
        (Function::Unequal, [a, b]) => f64::from(u8::from(a != b)),
        (Function::If, [a, b, c]) => {
            if *a == 0.0 {
                *c
            } else {
                *b
            }
        }
        (Function::Min, [a, b]) => a.min(*b),
        (Function::Max, [a, b]) => a.max(*b),
        (Function::Abs, [a]) => a.abs(),
        (Function::Log, [a]) => a.ln(),
        (Function::Exp, [a]) => a.exp(),
        (Function::Sqrt, [a]) => a.sqrt(),
        _ => f64::NAN,
    };
    match expr {
        Expr::Number(number) => Some(*number),
        Expr::Word(_) => Some(size as f64),
        // Over equal entries, and pooled: not worth a rule of their own.
        Expr::Call(Function::Softmax | Function::Share, _) => None,
        Expr::Call(function, arguments) => {
            let values: Option<Vec<_>> = arguments.iter().map(|argument| constant(argument, size)).collect();
            Some(known(*function, &values?))
        }
    }
}

fn compile_into(expr: &Expr, size: usize, program: &mut Vec<Instruction>) -> Operand {
    if let Some(number) = constant(expr, size) {
        return Operand::Number(number as f32);
    }
    let (operation, arguments) = match expr {
        Expr::Number(number) => return Operand::Number(*number as f32),
        Expr::Word(word) => (Operation::Word(*word), vec![]),
        Expr::Call(Function::PooledMean, arguments) if arguments[0] == Expr::Word(Word::Attention) => {
            (Operation::PooledAttention, vec![])
        }
        Expr::Call(function @ (Function::Add | Function::Multiply), arguments) if arguments.len() > 2 => {
            // One after the other.
            let (last, before) = arguments.split_last().expect("there are more than two");
            let before = compile_into(&Expr::Call(*function, before.to_vec()), size, program);
            (Operation::Function(*function), vec![before, compile_into(last, size, program)])
        }
        Expr::Call(function, arguments) if function.remembers() => {
            let number = arguments.get(1).and_then(|number| constant(number, size)).unwrap_or(0.0);
            let number = if *function == Function::Ema { number } else { number.ceil() };
            (Operation::Memory(*function, number as f32), vec![compile_into(&arguments[0], size, program)])
        }
        Expr::Call(function, arguments) => {
            let arguments = arguments.iter().map(|argument| compile_into(argument, size, program)).collect();
            (Operation::Function(*function), arguments)
        }
    };
    let per_head = expr.is_per_head();
    let instruction = Instruction { operation, arguments, per_head, always: false };
    let index = program.iter().position(|other| *other == instruction).unwrap_or_else(|| {
        program.push(instruction);
        program.len() - 1
    });
    Operand::Result(index)
}
