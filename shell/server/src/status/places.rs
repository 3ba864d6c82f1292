//! The limit of open connections: which one gives way to a new one (U4).

use std::net::IpAddr;

use crate::sync::channel::{Receiver, Sender, bounded};

/// Connections with a place, in the order of their arrival.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    last: u64,
    taken: Vec<Admission>,
}

#[derive(Debug)]
struct Admission {
    number: u64,
    host: IpAddr,
    /// Its request has arrived.
    has_asked: bool,
    /// Dropping this tells the connection to give way.
    _held: Sender<()>,
}

impl Places {
    /// This many places, all free.
    pub(super) const fn new(most: usize) -> Self {
        Self {
            most,
            last: 0,
            taken: Vec::new(),
        }
    }

    /// Takes a place for a new connection from `host`. If none is free, an old connection gives way: one
    /// without a request, if there is one. Among these, the host with most of them gives way with its oldest
    /// one. Returns the connection's number, and a receiver that ends when it has to give way itself.
    pub(super) fn take(&mut self, host: IpAddr) -> (u64, Receiver<()>) {
        if self.taken.len() >= self.most {
            self.give_way();
        }
        self.last += 1;
        let (held, given_up) = bounded(1);
        self.taken.push(Admission {
            number: self.last,
            host,
            has_asked: false,
            _held: held,
        });
        (self.last, given_up)
    }

    /// Notes that the request of a connection has arrived.
    pub(super) fn has_asked(&mut self, number: u64) {
        let place = self.taken.iter_mut().find(|place| place.number == number);
        if let Some(place) = place {
            place.has_asked = true;
        }
    }

    /// Frees the place of a connection, if it still has one.
    pub(super) fn leave(&mut self, number: u64) {
        self.taken.retain(|place| place.number != number);
    }

    fn give_way(&mut self) {
        let all_have_asked = self.taken.iter().all(|place| place.has_asked);
        let may_stay = |place: &Admission| place.has_asked && !all_have_asked;
        let from = |host: IpAddr| {
            let same = self.taken.iter().filter(|place| place.host == host);
            same.filter(|place| !may_stay(place)).count()
        };
        let candidates = self.taken.iter().filter(|place| !may_stay(place));
        let first = candidates.min_by_key(|place| (usize::MAX - from(place.host), place.number));
        if let Some(number) = first.map(|place| place.number) {
            self.leave(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_crowds_give_way_first() {
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|host| host.parse().unwrap());
        let mut places = Places::new(4);
        let is_given_up =
            |given_up: &Receiver<()>| given_up.try_recv().is_err_and(|error| error.is_closed());
        let (asking, asks) = places.take(one);
        places.has_asked(asking);
        let (_, lonely) = places.take(other);
        let (_, first) = places.take(one);
        let (second_number, second) = places.take(one);
        let (_, third) = places.take(one);
        assert!(is_given_up(&first), "the first of the crowd");
        let all = [&asks, &lonely, &second, &third];
        assert_eq!(all.map(is_given_up), [false; 4]);
        places.leave(second_number);
        let (number, fourth) = places.take(other);
        assert_eq!(
            [&lonely, &third, &fourth].map(is_given_up),
            [false; 3],
            "there was a place"
        );
        for place in 1..=number {
            places.has_asked(place);
        }
        let _fifth = places.take(one);
        assert!(is_given_up(&asks), "all have asked, of both as many");
        assert_eq!([&lonely, &third, &fourth].map(is_given_up), [false; 3]);
    }
}
