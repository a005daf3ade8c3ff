//! `Step`: one ingredient of a recipe, with its arguments.

use core::fmt;

use super::Ingredient;
use super::place::Place;
use super::value::Value;

/// One ingredient of a recipe, with its arguments.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) ingredient: &'static Ingredient,
    pub(super) name: Place,
    /// By the place of the parameter in the ingredient's table.
    pub(super) arguments: Box<[Option<Argument>]>,
}

#[derive(Clone, Debug)]
pub(super) struct Argument {
    pub(super) value: Value,
    pub(super) place: Place,
}

impl Step {
    /// Checks the frees, where the ingredient can and the line does not say. The place is then that of the name.
    pub(super) fn check(&mut self) {
        for (parameter, argument) in self.ingredient.parameters().iter().zip(&mut self.arguments) {
            match argument {
                None if parameter.name() == "checked" => {
                    *argument = Some(Argument { value: Value::Flag(true), place: self.name.clone() });
                }
                Some(Argument { value: Value::Recipe(recipe), .. }) => *recipe = recipe.checked(),
                _ => {}
            }
        }
    }
}

impl PartialEq for Step {
    /// Its place in the text does not count.
    fn eq(&self, other: &Self) -> bool {
        let values = |step: &Self| {
            step.arguments.iter().map(|a| a.as_ref().map(|a| a.value.clone())).collect::<Vec<_>>()
        };
        self.ingredient.name() == other.ingredient.name() && values(self) == values(other)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.ingredient.name())?;
        let given = self.ingredient.parameters().iter().zip(&self.arguments);
        let mut before = "(";
        for (parameter, argument) in
            given.filter_map(|(parameter, argument)| Some((parameter, argument.as_ref()?)))
        {
            write!(f, "{before}{}={}", parameter.name(), argument.value)?;
            before = ", ";
        }
        if before == "(" { Ok(()) } else { f.write_str(")") }
    }
}
