//! `Parser`: reads a line.

use std::sync::Arc;

use super::nearest::nearest;
use super::place::Place;
use super::step::{Argument, Step};
use super::value::{Value, is_plain};
use super::{Ingredient, Recipe, ingredients};
use crate::error::Error;
use crate::resource::card::ArgumentKind;

/// No recipe that a person writes is longer.
const LONGEST: usize = 4096;

/// The most ingredients, those of recipes within recipes too. Each is a call deeper when a request passes through.
const MOST_INGREDIENTS: usize = 32;

/// How deep recipes may stand in recipes: each is a call deeper here.
const DEEPEST: usize = 4;

pub(super) struct Parser<'t> {
    text: &'t str,
    /// Shared by the recipes within this one.
    shared: Arc<str>,
    at: usize,
    ingredients: usize,
}

pub(super) fn parse(text: &str) -> Result<Recipe, Error> {
    if text.len() > LONGEST {
        let start = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let place = Place(start..start);
        return Err(place.malformed(text, format!("the line is longer than {LONGEST} bytes")));
    }
    let mut parser = Parser { text, shared: text.into(), at: 0, ingredients: 0 };
    let recipe = parser.recipe(0)?;
    match parser.peek() {
        None => Ok(recipe),
        Some(_) => Err(parser.unexpected("`|` and another ingredient, or the end")),
    }
}

impl Parser<'_> {
    /// The rest, from the next character that is no space.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.at += wanted.len_utf8();
        }
        is_there
    }

    /// The characters from here on that are of a kind.
    fn run(&mut self, is_of_it: impl Fn(char) -> bool) -> Place {
        let rest = &self.text[self.at..];
        let length = rest.find(|c| !is_of_it(c)).unwrap_or(rest.len());
        let start = self.at;
        self.at += length;
        Place(start..self.at)
    }

    fn malformed(&self, place: &Place, why: impl Into<String>) -> Error {
        place.malformed(self.text, why)
    }

    /// The next character is none of those that may follow.
    fn unexpected(&mut self, wanted: &str) -> Error {
        match self.peek() {
            None => {
                self.malformed(&Place(self.at..self.at), format!("the line ends here; expected {wanted}"))
            }
            Some(c) => {
                let place = Place(self.at..self.at + c.len_utf8());
                self.malformed(
                    &place,
                    format!("`{}` is not expected here; expected {wanted}", c.escape_debug()),
                )
            }
        }
    }

    /// Ingredients with `|` between them, up to the end, a comma or a closing parenthesis.
    fn recipe(&mut self, depth: usize) -> Result<Recipe, Error> {
        let mut recipe = Recipe { text: Arc::clone(&self.shared), layers: Vec::new(), source: None };
        if matches!(self.peek(), None | Some(',' | ')')) {
            return Ok(recipe);
        }
        loop {
            let step = self.step(depth)?;
            if let Some(source) = &recipe.source {
                let why = format!("`{}` is a source, and nothing stands under one", source.ingredient.name());
                return Err(self.malformed(&step.name, why));
            }
            if step.ingredient.is_source() {
                recipe.source = Some(step);
            } else {
                recipe.layers.push(step);
            }
            if !self.take('|') {
                return Ok(recipe);
            }
        }
    }

    fn step(&mut self, depth: usize) -> Result<Step, Error> {
        if !self.peek().is_some_and(is_of_a_name) {
            return Err(self.unexpected("the name of a layer or a source"));
        }
        let name = self.run(is_of_a_name);
        self.ingredients += 1;
        if self.ingredients > MOST_INGREDIENTS {
            let why = format!("there are more than {MOST_INGREDIENTS} ingredients");
            return Err(self.malformed(&name, why));
        }
        let written = &self.text[name.0.clone()];
        let Some(ingredient) = ingredients().find(|ingredient| is_called(ingredient.name(), written)) else {
            let names = ingredients().map(Ingredient::name);
            let why = format!("nothing is called `{}`; {}", shown(written), meant(written, names));
            return Err(self.malformed(&name, why));
        };
        let mut step = Step { ingredient, arguments: vec![None; ingredient.parameters().len()].into(), name };
        if self.take('(') {
            self.arguments(&mut step, depth)?;
        }
        let missing = ingredient.parameters().iter().zip(&step.arguments);
        match missing.into_iter().find(|(parameter, argument)| parameter.is_needed() && argument.is_none()) {
            Some((parameter, _)) => {
                let why =
                    format!("`{}` needs {}={}", ingredient.name(), parameter.name(), parameter.kind.short());
                Err(self.malformed(&step.name, why))
            }
            None => Ok(step),
        }
    }

    /// Up to the closing parenthesis.
    fn arguments(&mut self, step: &mut Step, depth: usize) -> Result<(), Error> {
        let mut named = false;
        if self.take(')') {
            return Ok(());
        }
        for position in 0.. {
            self.peek();
            let name = self.name_of_argument();
            let at = match &name {
                Some(name) => {
                    named = true;
                    self.parameter(step, name)?
                }
                None => position,
            };
            let Some(parameter) = step.ingredient.parameters().get(at).filter(|_| name.is_some() || !named)
            else {
                return Err(self.one_too_many(step, named));
            };
            let argument = self.value(step.ingredient, parameter.name(), parameter.kind, depth)?;
            if step.arguments[at].is_some() {
                let place = name.unwrap_or(argument.place);
                return Err(self.malformed(&place, format!("`{}` is given twice", parameter.name())));
            }
            step.arguments[at] = Some(argument);
            if self.take(')') {
                return Ok(());
            }
            if !self.take(',') {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
        Ok(())
    }

    /// A name with `=` behind it, if that comes next.
    fn name_of_argument(&mut self) -> Option<Place> {
        let start = self.at;
        let name = self.run(is_of_a_name);
        if !name.0.is_empty() && self.take('=') {
            return Some(name);
        }
        self.at = start;
        None
    }

    fn parameter(&self, step: &Step, name: &Place) -> Result<usize, Error> {
        let written = &self.text[name.0.clone()];
        let parameters = step.ingredient.parameters();
        parameters.iter().position(|parameter| is_called(parameter.name(), written)).ok_or_else(|| {
            let names = parameters.iter().map(|parameter| parameter.name());
            let why = format!(
                "`{}` takes no `{}`; {}",
                step.ingredient.name(),
                shown(written),
                meant(written, names)
            );
            self.malformed(name, why)
        })
    }

    #[cold]
    fn one_too_many(&mut self, step: &Step, named: bool) -> Error {
        let place = self.run(is_plain);
        if named {
            return self.malformed(&place, "an argument without a name comes after one that has a name");
        }
        let why = match step.ingredient.parameters().len() {
            0 => format!("`{}` takes no arguments", step.ingredient.name()),
            1 => format!("`{}` takes one argument", step.ingredient.name()),
            count => format!("`{}` takes {count} arguments", step.ingredient.name()),
        };
        self.malformed(&place, why)
    }

    fn value(
        &mut self,
        of: &Ingredient,
        name: &str,
        kind: ArgumentKind,
        depth: usize,
    ) -> Result<Argument, Error> {
        self.peek();
        if kind == ArgumentKind::Recipe {
            let start = self.at;
            if depth + 1 >= DEEPEST {
                let why = format!("recipes stand in each other more than {DEEPEST} deep");
                return Err(self.malformed(&Place(start..start), why));
            }
            let recipe = self.recipe(depth + 1)?;
            return Ok(Argument { value: Value::Recipe(recipe), place: Place(start..self.at) });
        }
        if self.peek() == Some('"') {
            return self.quoted(name, kind);
        }
        let mut place = self.run(is_plain);
        if place.0.is_empty() {
            return Err(self.unexpected(&format!("{} for `{name}`", kind.name())));
        }
        // A size may be written with a space before its unit.
        let is_number = self.text[place.0.clone()].bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if is_number && self.peek().is_some_and(|c| c.is_ascii_alphabetic() || c == '%') {
            place.0.end = self.run(is_plain).0.end;
        }
        let written = &self.text[place.0.clone()];
        let value = kind.read(written).map_err(|why| {
            let is_a_name = of.parameters().iter().find(|parameter| is_called(parameter.name(), written));
            let hint = is_a_name.map(|parameter| format!("; did you mean `{}=...`?", parameter.name()));
            self.malformed(
                &place,
                format!("`{name}` is `{}`: {why}{}", shown(written), hint.unwrap_or_default()),
            )
        })?;
        Ok(Argument { value, place })
    }

    /// A text in double quotes.
    fn quoted(&mut self, name: &str, kind: ArgumentKind) -> Result<Argument, Error> {
        let start = self.at;
        let mut text = String::new();
        let mut is_escaped = false;
        for (offset, c) in self.text[start..].char_indices().skip(1) {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => {
                    is_escaped = true;
                    continue;
                }
                '"' => {
                    self.at = start + offset + 1;
                    let place = Place(start..self.at);
                    let value = kind.read(&text).map_err(|why| {
                        self.malformed(&place, format!("`{name}` is `{}`: {why}", shown(&text)))
                    })?;
                    return Ok(Argument { value, place });
                }
                _ => {}
            }
            text.push(c);
        }
        Err(self.malformed(&Place(start..start + 1), "the quote that opens here is not closed"))
    }
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// Kebab case and snake case are one.
fn is_called(name: &str, written: &str) -> bool {
    let of =
        |text: &str| -> Vec<u8> { text.bytes().map(|byte| if byte == b'_' { b'-' } else { byte }).collect() };
    name.len() == written.len() && of(name) == of(written)
}

/// What was written may be as long as a line.
fn shown(written: &str) -> String {
    let shown: String = written.chars().take(40).collect();
    shown.escape_debug().to_string()
}

fn meant<'n>(written: &str, names: impl Iterator<Item = &'n str> + Clone) -> String {
    match nearest(written, names.clone()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => {
            let names: Vec<&str> = names.collect();
            if names.is_empty() {
                "it takes no arguments".into()
            } else {
                format!("there are {}", names.join(", "))
            }
        }
    }
}
