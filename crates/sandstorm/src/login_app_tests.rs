//! Tests what becomes of a request while its credentials are checked: beside an application, with files on
//! the disk, and when the site changes meanwhile.

use tcpip::Timer;

use super::*;
use crate::app::Clients;
use crate::disk::{Chunks, Reads};
use crate::exchange::Ticket;
use crate::memory_budget::MemoryBudget;
use crate::site::{HostedSite, ReplyId};
use crate::web::PreparedReply;

/// A server whose threads check credentials and read files only while `works` is set.
struct Stuck<A: App> {
    world: World<A>,
    works: Rc<Cell<bool>>,
}

impl<A: App> Stuck<A> {
    fn new(site: &Arc<Site>, app: A) -> Self {
        let (checks, reads) = (Arc::new(Checks::default()), Arc::new(Reads::default()));
        let works = Rc::new(Cell::new(false));
        let threads = |http: Http<A>, bell: &Bell| {
            let http = http.with_logins(Logins::new(&checks, bell));
            http.with_chunks(Chunks::new(&reads, 0, bell))
        };
        let (checks, reads, is_set) = (checks.clone(), reads.clone(), Rc::clone(&works));
        let work = move || {
            if is_set.get() {
                checks.work_all();
                drop(reads.work_all());
            }
        };
        let world = World::new(site, app, SendMode::MemCopy, threads, work);
        Self { world, works }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.world.link.clock.now() + time;
        self.world.run_until(|_, now| now >= end);
    }

    /// Lets the threads work until all clients are done.
    fn finish(&mut self) {
        self.works.set(true);
        assert!(self.world.run(|_| false));
    }

    /// The responses to GET that a connection has received, each with its status, fields and body.
    fn responses(&self, index: usize) -> Vec<(u16, &str, &[u8])> {
        let mut rest = self.world.received(index);
        let mut responses = Vec::new();
        while !rest.is_empty() {
            let (line, fields, body) = take_response(&mut rest, true);
            let status = line["HTTP/1.1 ".len()..][..3].parse().unwrap();
            responses.push((status, fields, body));
        }
        responses
    }

    fn statuses(&self, index: usize) -> Vec<u16> {
        let responses = self.responses(index).into_iter();
        responses.map(|(status, ..)| status).collect()
    }
}

/// Asks for the end of the connection after the response.
fn last(request: &str) -> String {
    request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
}

/// Adds a field to each response.
#[derive(Debug, Default)]
struct Named {
    asked: usize,
}

impl App for Named {
    type State = ();
    type Message = ();

    fn on_request(&mut self, request: &Request<'_>, exchange: &mut Exchange<'_, ()>) -> Verdict {
        self.asked += 1;
        let field = format!("of={}", request.target());
        exchange.add_field("Set-Cookie", field).unwrap();
        Verdict::Site
    }
}

#[test]
fn a_response_after_a_check_has_the_fields_of_its_own_request() {
    let site = Arc::new(Place::new(&[]).load().unwrap());
    let mut server = Stuck::new(&site, Named::default());
    let requests = [
        ("/private/", "ali:sesame", 200),
        ("/private/index.html", "ali:wrong", 401),
        ("/page.html", "", 200),
    ];
    for (path, credentials, _) in requests {
        server.world.connect(&last(&get(path, credentials)));
        server.run_for(Duration::from_millis(100));
    }
    server.finish();
    for (index, (path, _, status)) in requests.into_iter().enumerate() {
        let (found, fields, _) = server.responses(index)[0];
        let cookies = fields.matches("Set-Cookie: ").count();
        let own = fields.contains(&format!("Set-Cookie: of={path}\r\n"));
        assert_eq!((found, cookies, own), (status, 1, true), "{fields}");
    }
    let web = server.world.server.transports.stack().app();
    assert_eq!(web.app().asked, 3, "each request is shown once");
}

/// Answers its requests later, and tries it twice.
#[derive(Debug, Default)]
struct Slow<const SEES_ALL: bool>(Vec<Ticket>);

impl<const SEES_ALL: bool> App for Slow<SEES_ALL> {
    const SEES: Sees = <Leaves<SEES_ALL> as App>::SEES;
    type State = ();
    type Message = ();

    fn on_request(&mut self, _: &Request<'_>, exchange: &mut Exchange<'_, ()>) -> Verdict {
        self.0.push(exchange.ticket());
        Verdict::Later
    }

    fn on_start(&mut self, clients: &mut impl Clients<()>) {
        clients.set_timer(Timer::new(0), Duration::from_millis(100));
    }

    fn on_timer(&mut self, timer: Timer, clients: &mut impl Clients<()>) {
        for ticket in self.0.drain(..) {
            assert!(clients.answer(ticket, |_, _| Verdict::Site));
            let again = clients.answer(ticket, |_, exchange| exchange.text(format_args!("twice")));
            assert!(!again, "it has been answered, or waits for a check");
        }
        clients.set_timer(timer, Duration::from_millis(100));
    }
}

/// A place with a file that stays on the disk.
fn with_long_file() -> Place {
    let mut place = Place::new(&[]);
    place.settings.memory = Some(MemoryBudget::new(0));
    fs::write(place.folder.path().join("site/long.bin"), [b'x'; 1_000]).unwrap();
    place
}

/// The client closes its side at once, so the server knows this before the first answer.
#[test]
fn requests_behind_a_deferred_one_are_answered_although_the_client_has_closed_its_side() {
    fn check<A: App>(app: A, requests: &[(&str, u16)]) {
        let place = with_long_file();
        let mut server = Stuck::new(&Arc::new(place.load().unwrap()), app);
        let of = |(path, _): &(&str, u16)| get(path, "ali:sesame");
        let talk = Talk {
            bytes: requests.iter().map(of).collect::<String>().into_bytes(),
            half_close: true,
            ..Talk::default()
        };
        server.world.client.connect(80, talk);
        for _ in 0..20 {
            // The client acknowledges each response before the next thread has worked.
            server.works.set(false);
            server.run_for(Duration::from_millis(100));
            server.works.set(true);
            server.run_for(Duration::from_millis(5));
        }
        let expected: Vec<_> = requests.iter().map(|(_, status)| *status).collect();
        assert_eq!(server.statuses(0), expected, "{requests:?}");
        server.finish();
    }
    let (deferred, checked, read) = (("/none", 404), ("/private/", 200), ("/long.bin", 200));
    for requests in [
        &[deferred, checked][..],
        &[deferred, read],
        &[deferred, read, checked, read],
        &[deferred, deferred],
    ] {
        check(Slow::<false>::default(), requests);
        check(Slow::<true>::default(), requests);
    }
}

/// Changes to a site whose replies are all new.
fn change_site<A: App>(world: &mut World<A>, site: &Arc<Site>) {
    let (web, contents) = world.server.transports.stack_mut().parts_mut();
    let replies = site.replies().iter().enumerate();
    let prepared = replies.map(|(index, reply)| {
        let hosted = site.hosted(ReplyId(index as u32));
        PreparedReply::add(reply, hosted, contents).unwrap()
    });
    let prepared = prepared.collect();
    web.change_site(Arc::clone(site), prepared, contents);
}

/// A request waits for its check when its path loses the password. The next one needs a password.
#[test]
fn a_refusal_is_only_for_the_request_whose_check_took_too_long() {
    fn check<A: App>(app: A, first: &str, status: u16) {
        let place = Place::new(&[]);
        let old = Arc::new(place.load().unwrap());
        let mut next = Place::new(&[]);
        next.settings.realms.clear();
        let users = place.folder.path().join("users");
        let realm = format!("/page.html={}", users.display());
        next.settings.add_basic_auth(&realm).unwrap();
        let mut server = Stuck::new(&old, app);
        let second = last(&get("/page.html", "ali:sesame"));
        server
            .world
            .connect(&[get(first, "ali:sesame"), second].concat());
        server.run_for(Duration::from_secs(1));
        change_site(&mut server.world, &Arc::new(next.load().unwrap()));
        server.run_for(ANSWER_TIMEOUT);
        server.finish();
        assert_eq!(server.statuses(0), [status, 200], "{first}");
    }
    check(SiteOnly, "/private/", 200);
    check(SiteOnly, "/private/none", 404);
    check(Leaves::<true>, "/private/", 200);
    check(Leaves::<false>, "/private/", 200);
    check(Leaves::<false>, "/private/none", 404);
}

#[test]
fn a_refusal_for_lack_of_time_or_of_a_file_has_the_fields_of_its_site() {
    fn check<A: App>(app: A) {
        let member = |hosts: &str, name: &str| {
            let mut place = with_long_file();
            place.settings.fields.add("X-Site", name).unwrap();
            HostedSite {
                hosts: vec![hosts.parse().unwrap()],
                site: Arc::new(place.load().unwrap()),
            }
        };
        let site = Arc::new(Site::by_hosts(&[member("b", "usual"), member("a", "own")]));
        let mut server = Stuck::new(&site, app);
        server.world.connect(&last(&get("/private/", "ali:sesame")));
        server.run_for(ANSWER_TIMEOUT + Duration::from_secs(1));
        // Nobody keeps the folder of the site.
        server.world.connect(&last(&get("/long.bin", "")));
        server.finish();
        for index in 0..2 {
            let (status, fields, _) = server.responses(index)[0];
            assert_eq!(status, 503);
            assert!(fields.contains("X-Site: own\r\n"), "{fields}");
        }
        let web = server.world.server.transports.stack().app();
        let counts = web.hosted_counters().iter();
        let busy: Vec<_> = counts
            .map(|one| one.of(Status::ServiceUnavailable))
            .collect();
        assert_eq!(busy, [0, 2]);
    }
    check(SiteOnly);
    check(Leaves::<true>);
}
