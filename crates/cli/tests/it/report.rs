//! The HTML report in a real browser: drawn, in both themes, without a word on the console and without the network.

use crate::common::{self, folder, json};
use std::fs;
use std::path::Path;
use std::process::Output;

/// First line color of each theme, as in report.css.
const FIRST_LINE: [(&str, [u8; 3]); 2] = [("light", [0x2f, 0x6d, 0xb5]), ("dark", [0x6f, 0xa8, 0xee])];

fn chromium(dir: &Path, extra: &[&str], url: &str) -> Output {
    let fixed = [
        "--enable-logging=stderr",
        "--force-device-scale-factor=1",
        "--window-size=1280,2400",
        "--virtual-time-budget=3000",
    ];
    common::browse(common::chromium(dir).args(fixed).args(extra).arg(url))
}

fn report(dir: &Path, extra: &[&str]) -> String {
    let arguments = ["run", "two.toml", "--engine", "sim", "--out", "out"];
    json(dir, &[&arguments[..], extra].concat());
    format!("file://{}", dir.join("out/report.html").canonicalize().unwrap().display())
}

/// Console messages of pages.
fn console(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().filter(|l| l.contains("CONSOLE")).map(str::to_owned).collect()
}

fn dom(dir: &Path, url: &str) -> String {
    let output = chromium(dir, &["--dump-dom"], url);
    assert_eq!(console(&output), Vec::<String>::new());
    String::from_utf8(output.stdout).unwrap()
}

/// Pixels of exactly this color.
fn pixels(png: &Path, color: [u8; 3]) -> usize {
    let decoder = png::Decoder::new(std::io::BufReader::new(fs::File::open(png).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut buffer = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut buffer).unwrap();
    buffer[..info.buffer_size()].chunks(info.color_type.samples()).filter(|p| p[..3] == color).count()
}

#[test]
fn plots_are_drawn_in_both_themes() {
    let dir = folder();
    let url = report(dir.path(), &[]);
    for (theme, color) in FIRST_LINE {
        let shot = dir.path().join(format!("{theme}.png"));
        let output =
            chromium(dir.path(), &[&format!("--screenshot={}", shot.display())], &format!("{url}#{theme}"));
        assert_eq!(console(&output), Vec::<String>::new(), "{theme}");
        assert!(pixels(&shot, color) > 2000, "{theme}: bars and lines are missing");
    }
}

#[test]
fn page_has_cases_claims_plots_and_the_command() {
    let dir = folder();
    let url = report(dir.path(), &[]);
    let dom = dom(dir.path(), &url);
    for wanted in
        ["moves-data", "at least a little", "badge pass", "--seed 7", "Over time", "Distributions", "<canvas"]
    {
        assert!(dom.contains(wanted), "{wanted}");
    }
    assert!(!dom.contains("data-charts=\"0\""));
    assert_eq!(dom.matches("class=\"u-legend").count(), dom.matches("<canvas").count(), "a legend per plot");
}

#[test]
fn numeric_sweep_is_drawn_as_lines() {
    let dir = folder();
    let url = report(dir.path(), &["--set", "traffic.0.connections=1,2,4"]);
    let dom = dom(dir.path(), &url);
    assert!(dom.contains("Sweep over traffic.0.connections") && dom.contains("id=\"sweeps\""));
}

#[test]
fn sweep_over_quantities_is_drawn_as_lines() {
    let dir = folder();
    let url = report(dir.path(), &["--set", "topology.rate=10mbit,20mbit,30mbit"]);
    let dom = dom(dir.path(), &url);
    assert!(dom.contains("Sweep over topology.rate") && dom.contains("\"unit\":\"Mbit/s\""));
}

#[test]
fn page_loads_no_external_resource() {
    let dir = folder();
    report(dir.path(), &[]);
    let html = fs::read_to_string(dir.path().join("out/report.html")).unwrap();
    assert!(html.contains("default-src 'none'"), "the browser itself refuses to load anything");
    for attribute in ["src=\"", "href=\"", "url("] {
        for after in html.split(attribute).skip(1) {
            assert!(after.starts_with("data:"), "{attribute}{}", after.chars().take(60).collect::<String>());
        }
    }
}

/// Measures a report of the demo in a window of this width: widths of the page, of the table of cases, and of its frame.
fn widths(dir: &Path, window: u32) -> Vec<u32> {
    let html = fs::read_to_string(dir.join("demo/report.html")).unwrap();
    let script = "<script>const f = document.querySelector('#cases .scroll'); parent.document.body.id = 'widths ' + \
                  [document.documentElement.scrollWidth, f.scrollWidth, f.clientWidth].join(' ') + ' end'</script>";
    let html = html.replace("</body>", &format!("{script}</body>"));
    // A browser's own window may have a least width; a frame has not.
    let frame = format!(
        "<!doctype html><body><iframe width={window} height=2000 style='border: 0' srcdoc=\"{}\"></iframe></body>",
        html.replace('&', "&amp;").replace('"', "&quot;")
    );
    fs::write(dir.join("measured.html"), frame).unwrap();
    let url = format!("file://{}", dir.join("measured.html").canonicalize().unwrap().display());
    let output = chromium(dir, &["--dump-dom"], &url);
    let dom = String::from_utf8(output.stdout).unwrap();
    let found = dom.split("id=\"widths ").nth(1).and_then(|rest| rest.split(" end").next());
    found.unwrap_or_else(|| panic!("the script did not run")).split(' ').map(|n| n.parse().unwrap()).collect()
}

#[test]
fn tables_fit_narrow_pages_and_are_whole_on_wide_ones() {
    let dir = folder();
    json(dir.path(), &["demo", "--engine", "sim", "--out", "demo"]);
    for window in [400, 800] {
        let [page, table, frame] = widths(dir.path(), window)[..] else { panic!("three figures") };
        assert!(page <= window, "a page of {page} px in a window of {window} px");
        assert!(table > frame, "the table scrolls inside its frame");
    }
    let [_, table, frame] = widths(dir.path(), 1280)[..] else { panic!("three figures") };
    assert!(table <= frame, "columns are hidden: {table} px in {frame} px");
}

#[test]
fn scenario_text_is_escaped() {
    let dir = folder();
    let evil = "</script><script>console.error('evil')</script><b>bold</b>";
    let text = fs::read_to_string(dir.path().join("two.toml")).unwrap();
    fs::write(dir.path().join("two.toml"), text.replace("Two short paths", evil)).unwrap();
    let url = report(dir.path(), &[]);
    assert!(dom(dir.path(), &url).contains("&lt;b&gt;bold"));
}

#[test]
fn every_case_has_a_line() {
    let dir = folder();
    let rates: Vec<String> = (11..=24).map(|rate| format!("{rate}mbit")).collect();
    let url = report(dir.path(), &["--set", &format!("topology.rate={}", rates.join(","))]);
    let dom = dom(dir.path(), &url);
    let data = dom.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let plots = data["distributions"].as_array().unwrap();
    assert!(!plots.is_empty());
    let cases = data["cases"].as_array().unwrap().len();
    assert_eq!(cases, 28, "two algorithms at each rate");
    for plot in plots {
        assert_eq!(plot["lines"].as_array().unwrap().len(), cases, "{}", plot["title"]);
        assert!(plot["xs"].as_array().unwrap().len() <= 1_201);
    }
    assert!(!dom.contains("not drawn"));
}

/// The page at `folder/report.html` after `script` has run in it: what that hands to `done(text)`.
fn scripted(dir: &Path, page: &Path, script: &str) -> String {
    let html = fs::read_to_string(page).unwrap();
    let answer = "const done = (text) => { const out = document.createElement('pre'); out.id = 'answer'; \
                  out.textContent = btoa(unescape(encodeURIComponent(text))); document.body.replaceChildren(out); };";
    let page = dir.join("scripted.html");
    fs::write(&page, html.replace("</body>", &format!("<script>{answer}{script}</script></body>"))).unwrap();
    let dom = dom(dir, &format!("file://{}", page.canonicalize().unwrap().display()));
    let found = dom.split("<pre id=\"answer\">").nth(1).and_then(|rest| rest.split('<').next());
    let coded = found.unwrap_or_else(|| panic!("the script did not answer: {}", &dom[..dom.len().min(2000)]));
    String::from_utf8(base64(coded)).unwrap()
}

fn base64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        (bits, count) = (bits << 6 | u32::from(value(c)), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}

/// Presses every card's two buttons, and hands over what the browser would save.
const PRESS: &str = "const saved = [], names = []; \
        URL.createObjectURL = (blob) => (saved.push(blob.text().then((text) => [blob.type, text])), 'blob:x'); \
        HTMLAnchorElement.prototype.click = function () { names.push(this.download); }; \
        const cards = document.querySelectorAll('figure.card').length; \
        document.querySelectorAll('.save button').forEach((button) => button.click()); \
        const faults = (text) => new DOMParser().parseFromString(text, 'image/svg+xml').querySelectorAll('parsererror').length; \
        Promise.all(saved).then((all) => done(JSON.stringify({ cards, files: all.map(([type, text], i) => \
            ({ name: names[i], type, text, faults: type.includes('svg') ? faults(text) : 0 })) })));";

/// Every card's two buttons are pressed; what the browser would save is looked at.
#[test]
fn every_plot_is_saved_as_svg_and_csv() {
    let dir = folder();
    report(dir.path(), &[]);
    let answer = scripted(dir.path(), &dir.path().join("out/report.html"), PRESS);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let files = answer["files"].as_array().unwrap();
    assert!(answer["cards"].as_u64().unwrap() > 5);
    assert_eq!(files.len() as u64, 2 * answer["cards"].as_u64().unwrap());
    for file in files.iter().filter(|file| file["type"] == "image/svg+xml") {
        let text = file["text"].as_str().unwrap();
        assert!(text.contains("xmlns=\"http://www.w3.org/2000/svg\"") && file["faults"] == 0, "{file}");
        assert!(!text.contains("NaN") && !text.contains("undefined") && !text.contains("var("), "{file}");
    }
    let named = |name: &str| {
        let found =
            files.iter().find(|file| file["name"] == name).unwrap_or_else(|| panic!("{name}: {files:#?}"));
        found["text"].as_str().unwrap().to_owned()
    };
    // Bars: the means of the cases, in the unit that the title says.
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.path().join("out/summary.json")).unwrap()).unwrap();
    let bars = named("goodput-mbit-s.csv");
    for case in summary["cases"].as_array().unwrap() {
        let runs = case["runs"].as_array().unwrap();
        let sum: f64 = runs.iter().map(|run| run["metrics"]["goodput_bps"].as_f64().unwrap()).sum();
        let line = bars.lines().find(|line| line.starts_with(case["set"]["cc"].as_str().unwrap())).unwrap();
        let value: f64 = line.split(',').nth(1).unwrap().parse().unwrap();
        assert!((value - sum / runs.len() as f64 / 1e6).abs() < 1e-6, "{line}");
    }
    // Lines: a column for each case, shares that rise to one.
    let shares = named("smoothed-rtt-on-the-paths.csv");
    assert!(shares.lines().next().unwrap().ends_with(",reno,lia"), "{shares}");
    let last: Vec<&str> = shares.lines().last().unwrap().split(',').collect();
    assert_eq!(last[1..], ["1", "1"]);
    let picture = named("smoothed-rtt-on-the-paths.svg");
    assert_eq!(picture.matches("class=\"line\"").count(), 2);
    assert!(picture.contains(">reno</text>") && picture.contains("Smoothed RTT"));
}

/// A chart with too many lines to tell apart shows some of them, and the others on selection.
#[test]
fn excess_cases_are_shown_on_demand() {
    let dir = folder();
    let rates: Vec<String> = (11..=24).map(|rate| format!("{rate}mbit")).collect();
    report(
        dir.path(),
        &["--set", &format!("topology.rate={}", rates.join(",")), "--set", "buffer=20kB,30kB"],
    );
    let count = "const lines = () => [...document.querySelectorAll('#distributions .u-legend')].map((legend) => \
                 legend.querySelectorAll('.u-series').length - 1); const first = lines(); \
                 const rate = [...document.querySelectorAll('select[data-key]')].find((s) => s.options.length > 10); \
                 rate.value = ''; rate.dispatchEvent(new Event('change')); \
                 done(JSON.stringify([first, lines()]));";
    let answer = scripted(dir.path(), &dir.path().join("out/report.html"), count);
    let [first, all]: [Vec<usize>; 2] = serde_json::from_str(&answer).unwrap();
    assert!(!first.is_empty() && first.iter().all(|lines| (1..=10).contains(lines)), "{answer}");
    assert!(all.iter().zip(&first).all(|(all, first)| *all == 14 * first), "{answer}");
}

/// Two hosts that are off at different moments.
const OFF: &str = r#"
title = "Two hosts are off now and then"
duration = "1s"
runs = 1
[host]
cc = "lia"
[topology]
kind = "virtual-host"
vms = 2
nics = 2
vm_rate = "20mbit"
path_rate = "50mbit"
path_delay = "50us"
[[traffic]]
kind = "bulk"
from = "vm*"
to = "client"
[[event]]
at = "100ms"
kind = "deschedule"
host = "vm0"
on = "30ms"
off = "30ms"
[[event]]
at = "100ms"
kind = "deschedule"
host = "vm1"
on = "37ms"
off = "41ms"
"#;

#[test]
fn descheduled_times_are_dots_on_the_page_and_in_the_plot() {
    let dir = folder();
    fs::write(dir.path().join("two.toml"), OFF).unwrap();
    report(dir.path(), &[]);
    let page = dir.path().join("out/report.html");
    let look = "const card = [...document.querySelectorAll('#series figure.card')].find((c) => c.textContent.startsWith('VM off time')); \
        const canvas = card.querySelector('canvas'); \
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data; \
        const count = (r, g, b) => { let n = 0; for (let i = 0; i < pixels.length; i += 4) \
            n += pixels[i] === r && pixels[i + 1] === g && pixels[i + 2] === b; return n; }; \
        setTimeout(() => done(JSON.stringify([count(0x2f, 0x6d, 0xb5), count(0xdd, 0x6b, 0x20)])), 0);";
    let dots: [u64; 2] = serde_json::from_str(&scripted(dir.path(), &page, look)).unwrap();
    assert!(dots.iter().all(|pixels| *pixels > 100), "{dots:?}");
    let answer: serde_json::Value = serde_json::from_str(&scripted(dir.path(), &page, PRESS)).unwrap();
    let files = answer["files"].as_array().unwrap();
    let of = |name: &str| files.iter().find(|file| file["name"] == name).unwrap()["text"].as_str().unwrap();
    let rows = of("vm-off-time.csv").lines().count() - 1;
    assert!(rows > 20 && of("vm-off-time.svg").matches("<circle").count() >= rows, "{rows}");
}

#[test]
fn odd_names_are_saved_safely() {
    let dir = folder();
    let names = "[[sweep.x]]\nname = \"=1+1\"\n[[sweep.x]]\nname = \"a\\rb\\u0001\"\n";
    let text = fs::read_to_string(dir.path().join("two.toml")).unwrap();
    let text = text.replace("cc = [\"reno\", \"lia\"]\n", names).replace(", cc='lia'", "");
    fs::write(dir.path().join("two.toml"), text).unwrap();
    report(dir.path(), &[]);
    let answer = scripted(dir.path(), &dir.path().join("out/report.html"), PRESS);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let files = answer["files"].as_array().unwrap();
    assert!(files.iter().all(|file| file["faults"] == 0), "{files:#?}");
    let csv = files.iter().find(|file| file["name"] == "smoothed-rtt-on-the-paths.csv").unwrap();
    assert!(csv["text"].as_str().unwrap().contains(",'=1+1,\"a\rb"), "{csv}");
    let svg = files.iter().find(|file| file["name"] == "smoothed-rtt-on-the-paths.svg").unwrap();
    let lines: Vec<&str> = svg["text"].as_str().unwrap().split("class=\"line\" d=\"").skip(1).collect();
    assert_eq!(lines.len(), 2);
    for line in lines {
        let path = line.split('"').next().unwrap();
        assert!(path.contains('H') && path.contains('V') && !path.contains('L'), "shares are steps: {path}");
    }
}
