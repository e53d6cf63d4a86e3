//! A scenario added to the folder is a reason to build again.
fn main() {
    println!("cargo::rerun-if-changed=../../../scenarios");
}
