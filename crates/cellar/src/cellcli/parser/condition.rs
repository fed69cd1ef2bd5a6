//! Conditions of WHERE. NOT binds closer than AND, AND closer than OR.

use super::super::ast::{Condition, Operand, Operator};
use super::super::error::Error;
use super::super::lexer::Token;
use super::{CLAUSES, Parser};

/// Parentheses and NOT in a condition may be nested this deep.
const DEPTH_MAX: usize = 64;
const COMPARISONS_MAX: usize = 1000;
const OPERATORS: &str = "an operator: =, !=, <, <=, >, >=, LIKE or NOT LIKE";

impl Parser<'_> {
    pub(super) fn condition(&mut self) -> Result<Condition, Error> {
        self.disjunction(0)
    }

    fn disjunction(&mut self, depth: usize) -> Result<Condition, Error> {
        let mut left = self.conjunction(depth)?;
        while self.takes("OR") {
            left = Condition::Or(Box::new(left), Box::new(self.conjunction(depth)?));
        }
        Ok(left)
    }

    fn conjunction(&mut self, depth: usize) -> Result<Condition, Error> {
        let mut left = self.negation(depth)?;
        while self.takes("AND") {
            left = Condition::And(Box::new(left), Box::new(self.negation(depth)?));
        }
        Ok(left)
    }

    fn negation(&mut self, depth: usize) -> Result<Condition, Error> {
        if depth > DEPTH_MAX {
            return Err(self.unexpected("a condition that is nested less deeply"));
        }
        if self.takes("NOT") || self.takes_sign("!") {
            return Ok(Condition::Not(Box::new(self.negation(depth + 1)?)));
        }
        if self.takes_sign("(") {
            let inner = self.disjunction(depth + 1)?;
            return match self.takes_sign(")") {
                true => Ok(inner),
                false => Err(self.unexpected("AND, OR or )")),
            };
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Condition, Error> {
        self.comparisons += 1;
        if self.comparisons > COMPARISONS_MAX {
            return Err(self.unexpected("a condition with fewer comparisons"));
        }
        let attribute = self.text("the name of an attribute, NOT or (")?;
        let is_negated = self.takes("NOT") || self.takes_sign("!");
        let (operator, is_unequal) = match self.peek() {
            Some(Token::Sign("=")) => (Operator::Equal, false),
            Some(Token::Sign("!=")) => (Operator::Equal, true),
            Some(Token::Sign("<")) => (Operator::Less, false),
            Some(Token::Sign("<=")) => (Operator::LessOrEqual, false),
            Some(Token::Sign(">")) => (Operator::Greater, false),
            Some(Token::Sign(">=")) => (Operator::GreaterOrEqual, false),
            Some(token) if token.is("LIKE") => (Operator::Like, false),
            _ => return Err(self.unexpected(OPERATORS)),
        };
        self.at += 1;
        let operand = match self.peek() {
            Some(token) if token.is("NULL") => Operand::Null,
            Some(token @ Token::Word(text)) if !CLAUSES.iter().any(|clause| token.is(clause)) => {
                Operand::Bare(text.clone())
            }
            Some(Token::Quoted(text)) => Operand::Quoted(text.clone()),
            _ => return Err(self.unexpected("a value: a number, a word, a quoted string or NULL")),
        };
        self.at += 1;
        let compare = Condition::Compare { attribute, operator, operand };
        Ok(if is_negated != is_unequal { Condition::Not(Box::new(compare)) } else { compare })
    }
}
