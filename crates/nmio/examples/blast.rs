#![allow(unsafe_code, missing_docs, clippy::all, clippy::pedantic)]
use nmio::device::*;
use nmio::*;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
fn sh(c: &str) {
    assert!(
        Command::new("sh")
            .arg("-c")
            .arg(c)
            .status()
            .unwrap()
            .success(),
        "{c}"
    );
}
fn pin(cpu: usize) {
    unsafe {
        let mut s: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut s);
        libc::sched_setaffinity(0, std::mem::size_of_val(&s), &s);
    }
}
struct R;
impl<P: Port> Handler<P> for R {
    #[inline(always)]
    fn handle_frame(&mut self, port: &mut P, mut f: Frame, _: Instant) {
        if f.len() < 42 {
            return;
        }
        let (a, b) = f.split_at_mut(6);
        a.swap_with_slice(&mut b[..6]);
        let (a, b) = f[26..34].split_at_mut(4);
        a.swap_with_slice(b);
        let (a, b) = f[34..38].split_at_mut(2);
        a.swap_with_slice(b);
        let _ = port.send(f);
    }
    fn handle_timers(&mut self, _: &mut P, _: Instant) {}
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let generic = args.get(1).is_some_and(|a| a == "generic");
    let wait = if args.get(2).is_some_and(|a| a == "block") {
        Wait::Block
    } else {
        Wait::Spin
    };
    let size: usize = args.get(3).map_or(64, |a| a.parse().unwrap());
    unsafe { assert_eq!(libc::unshare(libc::CLONE_NEWNET), 0) };
    let pid = std::process::id();
    sh(
        "ip link add srv type veth peer name cli; ip addr add 10.9.0.1/24 dev srv; ip link set srv up; ip link set cli up; ip addr add 10.9.1.1/24 dev cli",
    );
    let _ = pid;
    let cfg = |dev: &str, port| InterfaceConfig {
        device: dev.parse().unwrap(),
        own_addresses: vec![],
        services: vec![(Transport::Udp, port)],
        queues: 1,
        wait,
        program: "x",
    };
    let g = if generic { ",generic" } else { "" };
    let srv = Interface::open(&cfg(&format!("xdp:srv{g}"), 7)).unwrap_or_else(|e| panic!("{e}"));
    let cli = Interface::open(&cfg("xdp:cli", 9)).unwrap_or_else(|e| panic!("{e}"));
    let (sm, cm) = (srv.mac(), cli.mac());
    let stop = Arc::new(AtomicBool::new(false));
    let q = srv.queue(0);
    let s2 = stop.clone();
    let t = std::thread::spawn(move || {
        pin(0);
        let AnyPort::Xdp(mut p) = q.open(MemoryPlan::default()).unwrap() else {
            panic!()
        };
        println!("{:?}", p.summary());
        let c = LoopConfig {
            wait,
            ..Default::default()
        };
        nmio::run(&mut p, &mut R, &TscClock::new(), &c, &s2).unwrap();
        println!("server {:?}", p.counters());
    });
    pin(1);
    let AnyPort::Xdp(mut p) = cli.queue(0).open(MemoryPlan::default()).unwrap() else {
        panic!()
    };
    let mut frame = vec![0u8; size.max(60)];
    frame[..6].copy_from_slice(&sm);
    frame[6..12].copy_from_slice(&cm);
    frame[12] = 8;
    let ip = frame.len() - 14;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&(ip as u16).to_be_bytes());
    frame[22] = 64;
    frame[23] = 17;
    frame[26..30].copy_from_slice(&[10, 9, 1, 1]);
    frame[30..34].copy_from_slice(&[10, 9, 0, 1]);
    frame[35] = 9;
    frame[37] = 7;
    frame[38..40].copy_from_slice(&((ip - 20) as u16).to_be_bytes());
    let mut batch = Batch::new();
    let begin = std::time::Instant::now();
    let (mut sent, mut got) = (0u64, 0u64);
    let lim: u64 = args.get(4).map_or(256, |a| a.parse().unwrap());
    let mut last = begin;
    while begin.elapsed().as_secs() < 4 {
        let mut n = 0;
        while sent < got + lim && n < 64 && p.room() > 0 {
            let Some(mut f) = p.pool().take() else { break };
            f.set_len(frame.len());
            f.copy_from_slice(&frame);
            if p.send(f).is_err() {
                break;
            }
            sent += 1;
            n += 1;
        }
        p.flush().unwrap();
        p.receive(&mut batch, 256).unwrap();
        if !batch.is_empty() {
            last = std::time::Instant::now();
        }
        got += batch.len() as u64;
        batch.clear();
        if last.elapsed().as_millis() > 20 {
            got = sent;
            last = std::time::Instant::now();
            println!("stall");
        }
    }
    println!(
        "{} kpps sent {} got {} {:?}",
        got / 4000,
        sent,
        got,
        p.counters()
    );
    stop.store(true, Relaxed);
    t.join().unwrap();
    let _ = AtomicU64::new(0);
}
