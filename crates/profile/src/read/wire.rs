//! The wire format of protocol buffers: fields with a number, each a varint, eight bytes, four
//! bytes, or a length and that many bytes. Every read is checked against the end of the message.

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field<'a> {
    pub number: u64,
    pub value: Value<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Why a message cannot be read.
pub type Damage = &'static str;

/// The fields of a message, in their order.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }

    fn field(&mut self) -> Result<Field<'a>, Damage> {
        let tag = varint(&mut self.rest)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut self.rest)?),
            1 => Value::Number(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = varint(&mut self.rest)?;
                let length = usize::try_from(length).map_err(|_| "a field beyond the end")?;
                let (bytes, rest) = self
                    .rest
                    .split_at_checked(length)
                    .ok_or("a field beyond the end")?;
                self.rest = rest;
                Value::Bytes(bytes)
            }
            5 => Value::Number(u64::from(u32::from_le_bytes(self.array()?))),
            _ => return Err("a field of an unknown kind"),
        };
        match tag >> 3 {
            0 => Err("a field without a number"),
            number => Ok(Field { number, value }),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (bytes, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or("a field beyond the end")?;
        self.rest = rest;
        Ok(*bytes)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

impl<'a> Value<'a> {
    pub fn number(self) -> Result<u64, Damage> {
        match self {
            Value::Number(number) => Ok(number),
            Value::Bytes(_) => Err("bytes instead of a number"),
        }
    }

    pub fn bytes(self) -> Result<&'a [u8], Damage> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Number(_) => Err("a number instead of bytes"),
        }
    }

    /// Adds the numbers of a repeated field: one, or many packed into bytes.
    pub fn numbers(self, into: &mut Vec<u64>) -> Result<(), Damage> {
        match self {
            Value::Number(number) => into.push(number),
            Value::Bytes(mut packed) => {
                while !packed.is_empty() {
                    into.push(varint(&mut packed)?);
                }
            }
        }
        Ok(())
    }
}

fn varint(rest: &mut &[u8]) -> Result<u64, Damage> {
    let mut value = 0;
    for place in 0..10 {
        let (&byte, left) = rest.split_first().ok_or("a number beyond the end")?;
        *rest = left;
        let bits = u64::from(byte & 0x7f);
        if place == 9 && bits > 1 {
            break;
        }
        value |= bits << (7 * place);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number of more than 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(bytes: &[u8]) -> Result<Vec<u64>, Damage> {
        let mut numbers = Vec::new();
        Value::Bytes(bytes).numbers(&mut numbers)?;
        Ok(numbers)
    }

    #[test]
    fn numbers_are_read_up_to_64_bits() {
        let all = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(numbers(&all), Ok(vec![u64::MAX]));
        assert_eq!(numbers(&[0x96, 1, 0]), Ok(vec![150, 0]));
        assert_eq!(numbers(&[0x96]), Err("a number beyond the end"));
        let more = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert_eq!(numbers(&more), Err("a number of more than 64 bits"));
        assert_eq!(numbers(&[0x80; 20]), Err("a number of more than 64 bits"));
    }

    #[test]
    fn every_kind_of_field_is_passed_over_and_damage_ends_the_message() {
        let message = [
            0x08, 5, 0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0x1a, 2, 7, 8, 0x25, 9, 0, 0, 0,
        ];
        let fields: Result<Vec<_>, _> = Fields::new(&message).collect();
        let fields: Vec<_> = fields
            .unwrap()
            .iter()
            .map(|f| (f.number, f.value))
            .collect();
        assert_eq!(
            fields,
            [
                (1, Value::Number(5)),
                (2, Value::Number(1)),
                (3, Value::Bytes(&[7, 8])),
                (4, Value::Number(9))
            ]
        );
        for damaged in [
            &[0x1a, 9, 1][..],
            &[0x11, 1],
            &[0x25, 0],
            &[0x0b],
            &[0x00, 0],
        ] {
            let mut fields = Fields::new(damaged);
            assert!(fields.next().unwrap().is_err(), "{damaged:?}");
            assert!(fields.next().is_none());
        }
    }
}
