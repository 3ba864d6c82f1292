//! stub main
use latchd_model::{Explored, all, search};
fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::args().nth(1);
    for setup in all() {
        if only
            .as_ref()
            .is_some_and(|name| !setup.name.starts_with(name.as_str()))
        {
            continue;
        }
        let model = Explored::new(setup.clone());
        let found = {
            let t = std::time::Instant::now();
            let mut last = 0;
            search::exhaust(&model, 2, move |n| {
                if t.elapsed().as_secs() > last {
                    last = t.elapsed().as_secs();
                    if last % 5 == 0 {
                        eprintln!("  {n}");
                    }
                }
            })
        };
        println!("{} {found:?} missing {:?}", setup.name, model.missing());
        if found.is_wrong {
            if let Some(offence) = search::shortest_offence(&model, 3_000_000) {
                for step in &offence.steps {
                    println!("  {step}");
                }
                println!("  {}", offence.fault);
            }
        }
    }
}
