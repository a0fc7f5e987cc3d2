//! Tests parts of a site that need a name and a password. The credentials are checked between two steps
//! of the virtual clock.

use std::cell::Cell;
use std::fs;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nmio::{Bell, Clock as _};
use tcpip::SendMode;
use testkit::smol::Talk;

use crate::app::App;
use crate::exchange::Exchange;
use crate::limits::Limits;
use crate::load::{LoadError, Progress};
use crate::login::{Checks, LoginCounts, Logins};
use crate::request::Request;
use crate::settings::Settings;
use crate::testing::{World, request, take_response};
use crate::verdict::{Sees, Verdict};
use crate::web::ANSWER_TIMEOUT;
use crate::{Http, Site, SiteOnly, Status};

/// `ali` with the password `sesame`, and `eva` with `open`.
const USERS: &str = "\
ali:$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au
eva:$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$Zq/h7KXSS0l/rFM6S/xcPB3Qw63v0GqAozNbiwuUuC4
";

/// A folder with a site, files of users, and the settings for both.
struct Place {
    folder: tempfile::TempDir,
    settings: Settings,
}

impl Place {
    fn new(rules: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("site");
        fs::create_dir_all(site.join("private/deep")).unwrap();
        for path in [
            "index.html",
            "page.html",
            "private.html",
            "private/index.html",
            "private/deep/a b.txt",
            "privately.txt",
        ] {
            fs::write(site.join(path), format!("content of {path}")).unwrap();
        }
        fs::write(folder.path().join("users"), USERS).unwrap();
        let mut settings = Settings::default();
        let users = folder.path().join("users");
        let realm = format!("/private={}", users.display());
        settings.add_basic_auth(&realm).unwrap();
        for rule in rules {
            settings.add_redirect(rule).unwrap();
        }
        Self { folder, settings }
    }

    fn load(&self) -> Result<Site, LoadError> {
        let site = self.folder.path().join("site");
        Site::load_with(&site, &Limits::default(), &self.settings, |_| {})
    }

    fn world<A: App>(&self, app: A) -> World<A> {
        world(&Arc::new(self.load().unwrap()), app)
    }
}

/// Serves a site, and checks credentials at once.
fn world<A: App>(site: &Arc<Site>, app: A) -> World<A> {
    let checks = Arc::new(Checks::default());
    let logins = |http: Http<A>, bell: &Bell| http.with_logins(Logins::new(&checks, bell));
    let work = Arc::clone(&checks);
    World::new(site, app, SendMode::MemCopy, logins, move || {
        work.work_all();
    })
}

fn get(path: &str, credentials: &str) -> String {
    let field = match credentials {
        "" => String::new(),
        pair => format!("Authorization: Basic {}\r\n", STANDARD.encode(pair)),
    };
    request("GET", path, &field)
}

/// Sends requests over one connection, and returns the status and the body of each response.
fn exchange<A: App>(world: &mut World<A>, requests: &[String]) -> Vec<(u16, String)> {
    let last = request("GET", "/", "Connection: close\r\n");
    world.connect(&[&requests.concat(), &*last].concat());
    assert!(world.run(|_| false));
    let mut rest = world.received(world.client.connections.len() - 1);
    let responses = requests.iter().map(|request| {
        let (line, fields, body) = take_response(&mut rest, !request.starts_with("HEAD"));
        let status = line["HTTP/1.1 ".len()..][..3].parse().unwrap();
        let challenge = "WWW-Authenticate: Basic realm=\"/private\", charset=\"UTF-8\"\r\n";
        assert_eq!(fields.contains(challenge), status == 401, "{fields}");
        (status, String::from_utf8_lossy(body).into_owned())
    });
    let responses = responses.collect();
    let (line, _, body) = take_response(&mut rest, true);
    assert_eq!(
        (line, body),
        ("HTTP/1.1 200 OK", &b"content of index.html"[..])
    );
    assert!(rest.is_empty());
    responses
}

fn statuses<A: App>(world: &mut World<A>, requests: &[String]) -> Vec<u16> {
    let responses = exchange(world, requests);
    responses.into_iter().map(|(status, _)| status).collect()
}

fn counts<A: App>(world: &World<A>) -> LoginCounts {
    world
        .server
        .transports
        .stack()
        .app()
        .login_counts()
        .unwrap()
}

#[test]
fn a_protected_part_has_every_path_below_it_and_no_other() {
    let mut world = Place::new(&[]).world(SiteOnly);
    let protected = [
        ("/private", 301),
        ("/private/", 200),
        ("/private/index.html", 200),
        ("/private/deep/a%20b.txt", 200),
        ("/priv%61te/deep/a%20b.txt", 200),
        ("/private/missing", 404),
        ("/private%2fdeep", 404),
        ("/private.html", 200),
        ("http://a/private/", 200),
    ];
    let open = ["/", "/page.html", "/privately.txt"];
    let of = |credentials: &str| {
        let protected = protected.map(|(path, _)| get(path, credentials));
        let open = open.map(|path| get(path, credentials));
        [&protected[..], &open[..]].concat()
    };
    for wrong in ["", "ali:wrong", "nobody:sesame", "ali", "ali:sesame:"] {
        let mut expected = [401; 12];
        expected[9..].fill(200);
        assert_eq!(statuses(&mut world, &of(wrong)), expected, "{wrong:?}");
    }
    for right in ["ali:sesame", "eva:open"] {
        let expected: Vec<u16> = protected.map(|(_, status)| status).into();
        let expected = [&expected[..], &[200; 3]].concat();
        assert_eq!(statuses(&mut world, &of(right)), expected, "{right:?}");
    }
    // Each wrong request is checked, but right credentials only once.
    let LoginCounts {
        right,
        wrong,
        given_up,
    } = counts(&world);
    assert_eq!((right, wrong, given_up), (2, 3 * 9, 0));
}

#[test]
fn other_methods_and_forms_of_requests_need_the_password_too() {
    let mut world = Place::new(&[]).world(SiteOnly);
    let field = format!("Authorization: Basic {}\r\n", STANDARD.encode("ali:sesame"));
    let all = |fields: &str| {
        let ranged = format!("{fields}Range: bytes=0-6\r\n");
        let newer = format!("{fields}If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n");
        let later = request("GET", "/private/", fields).replace("HTTP/1.1", "HTTP/1.7");
        [
            request("HEAD", "/private/", fields),
            request("OPTIONS", "/private/", fields),
            request("POST", "/private/", fields),
            request("GET", "/private/", &ranged),
            request("GET", "/private/", &newer),
            format!("\r\n\r\n{later}"),
        ]
    };
    assert_eq!(
        statuses(&mut world, &all("")),
        [401, 401, 405, 401, 401, 401]
    );
    assert_eq!(
        statuses(&mut world, &all(&field)),
        [200, 204, 405, 206, 304, 200]
    );
    let twice = [&*field, &field].concat();
    assert_eq!(
        statuses(&mut world, &all(&twice)),
        [401, 401, 405, 401, 401, 401]
    );
    let body = &exchange(&mut world, &[get("/private/", "ali:sesame")])[0].1;
    assert_eq!(body, "content of private/index.html");
}

#[test]
fn rules_neither_lead_around_a_password_nor_hide_its_page() {
    let rules = [
        "/open /private/index.html 200",
        "/below/* /private/:splat 200",
        "/private/spa/* /page.html 200",
        "/private/gone /page.html 301",
        "/list /private/deep/index.json 200",
        "/names /private/deep/ 200",
        "/private.html /page.html 200!",
    ];
    let mut place = Place::new(&rules);
    place.settings.clean_urls = true;
    place.settings.listings = true;
    place
        .settings
        .add_error_page(Status::Unauthorized, b"/page.html");
    let mut world = place.world(SiteOnly);
    let of = |credentials| {
        [
            "/open",
            "/below/deep/a%20b.txt",
            "/private/spa/x",
            "/private/gone",
            "/list",
            "/names",
            "/private.html",
            "/page",
            "/page.html",
        ]
        .map(|path| get(path, credentials))
    };
    let (refused, page) = &exchange(&mut world, &of(""))[0];
    assert_eq!((*refused, &**page), (401, "content of page.html"));
    let mut expected = [401; 9];
    expected[7..].fill(200);
    assert_eq!(statuses(&mut world, &of("")), expected);
    expected.fill(200);
    expected[3] = 301;
    assert_eq!(statuses(&mut world, &of("ali:sesame")), expected);
}

#[test]
fn the_question_for_a_password_may_have_a_coded_page() {
    let mut place = Place::new(&[]);
    place
        .settings
        .add_error_page(Status::Unauthorized, b"/page.html");
    let mut builder = crate::Builder::with_settings(std::time::UNIX_EPOCH, &place.settings);
    let users = crate::login::Users::read(USERS.as_bytes()).unwrap();
    builder.add_realm(place.settings.realms[0].path.clone(), Arc::new(users));
    let file = |builder: crate::Builder, path: &str, content: &str| {
        builder.file(path.as_bytes(), std::time::UNIX_EPOCH, content.as_bytes())
    };
    let builder = file(builder, "/index.html", "content of index.html");
    let builder = file(builder, "/page.html", "the page for passwords");
    let site = Arc::new(file(builder, "/page.html.br", "coded").build());
    let mut world = world(&site, SiteOnly);
    let of = |pair: &str| {
        let plain = get("/private/x", pair);
        [
            plain.clone(),
            plain.replace("Host", "Accept-Encoding: br\r\nHost"),
        ]
    };
    let bodies = |world: &mut World<SiteOnly>, pair| {
        let bodies = exchange(world, &of(pair)).into_iter();
        bodies.map(|(_, body)| body).collect::<Vec<_>>()
    };
    let page = "the page for passwords";
    assert_eq!(bodies(&mut world, ""), [page, "coded"]);
    assert_eq!(bodies(&mut world, "ali:wrong"), [page, page]);
    assert_eq!(statuses(&mut world, &of("ali:sesame")), [404, 404]);
}

#[test]
fn a_rewrite_does_not_tell_whether_a_protected_file_exists() {
    let rules = [
        "/below/* /private/:splat 200",
        "/fixed /private/none 200",
        "/all/* /private/none.html 200",
        "/two/* /private/:splat 200",
        "/two/* /page.html 200",
        "/page.html /private/never 200",
    ];
    let mut world = Place::new(&rules).world(SiteOnly);
    let there = ["/below/index.html", "/below/deep", "/two/index.html"];
    let missing = ["/below/none", "/fixed", "/fixed/", "/all/x", "/two/none"];
    let of = |pair: &str| {
        let paths = there.iter().chain(&missing);
        let paths = paths.chain(&["/page.html", "/open%2Fpage.html"]);
        paths.map(|path| get(path, pair)).collect::<Vec<_>>()
    };
    let mut expected = [401; 10];
    expected[8..].copy_from_slice(&[200, 404]);
    assert_eq!(statuses(&mut world, &of("")), expected);
    assert_eq!(statuses(&mut world, &of("ali:wrong")), expected);
    // The folder has no index, so its path is known only without the slash of a redirect.
    let expected = [200, 404, 200, 404, 404, 404, 404, 200, 200, 404];
    assert_eq!(statuses(&mut world, &of("ali:sesame")), expected);
}

#[test]
fn the_operator_is_warned_of_pages_without_their_password_and_of_passwords_for_nothing() {
    let warnings = |rules: &[&str], change: &dyn Fn(&mut Settings, &str)| {
        let mut place = Place::new(rules);
        let users = place.folder.path().join("users").display().to_string();
        change(&mut place.settings, &users);
        let mut warnings = Vec::new();
        let folder = place.folder.path().join("site");
        let site = Site::load_with(&folder, &Limits::default(), &place.settings, |one| {
            if let Progress::Warning { warning, .. } = one {
                warnings.push(warning.to_string());
            }
        });
        assert_eq!(site.unwrap().totals().skipped, 0);
        warnings
    };
    let open = "\"/x /private/index.html 404\" sends /private/index.html to everybody, but /private \
                needs a password; name another page, or leave the rule out";
    let none = |_: &mut Settings, _: &str| {};
    assert_eq!(warnings(&["/x /private/index.html 404"], &none), [open]);
    for rule in [
        "/:x/y /private/deep/a%20b.txt 403!",
        "/* /private/index.html 410",
        "/private* /private/index.html 404",
    ] {
        let found = warnings(&[rule], &none);
        assert_eq!(found.len(), 1, "{rule}");
        assert!(
            found[0].starts_with(&format!("{rule:?} sends ")),
            "{found:?}"
        );
    }
    for rule in [
        "/private/* /private/index.html 404!",
        "/private/x /private/index.html 404",
        "/x /private/index.html 200",
        "/x /page.html 404",
    ] {
        assert!(warnings(&[rule], &none).is_empty(), "{rule}");
    }
    let found = warnings(&[], &|settings, _| {
        settings.add_error_page(Status::MethodNotAllowed, b"/private/index.html");
        settings.add_error_page(Status::Unauthorized, b"/private/index.html");
    });
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("\"error page 405\" sends /private/index.html"));
    let whole = |settings: &mut Settings, users: &str| {
        settings.realms.clear();
        settings.add_basic_auth(&format!("/={users}")).unwrap();
        settings.add_error_page(Status::MethodNotAllowed, b"/page.html");
    };
    assert!(warnings(&["/x /page.html 404"], &whole).is_empty());
    let more = |realm: &'static str| {
        move |settings: &mut Settings, users: &str| {
            settings
                .add_basic_auth(&format!("{realm}={users}"))
                .unwrap();
        }
    };
    let nothing = "--basic-auth names /none, but the folder has nothing there; correct the path";
    assert_eq!(warnings(&[], &more("/none/")), [nothing]);
    assert_eq!(warnings(&["/* /page.html 200"], &more("/none")), [nothing]);
    assert!(warnings(&["/none/* /page.html 200"], &more("/none")).is_empty());
    assert!(warnings(&["/none id=:id /:id 302"], &more("/none")).is_empty());
    for realm in [
        "/page",
        "/page.html",
        "/private/deep",
        "/private/deep/a%20b.txt",
    ] {
        assert!(warnings(&[], &more(realm)).is_empty(), "{realm}");
    }
}

#[test]
fn a_reload_reads_the_users_again_and_workers_forget_the_old_ones() {
    let place = Place::new(&[]);
    let site = place.load().unwrap();
    let path = place.folder.path().join("site");
    let next = site.load_next(&path, &Limits::default(), |_| {}).unwrap();
    assert!(
        next.origins
            .iter()
            .all(|origin| *origin != crate::site::NEW)
    );
    let users = place.folder.path().join("users");
    fs::write(&users, USERS.replace("ali:", "bob:")).unwrap();
    let next = site.load_next(&path, &Limits::default(), |_| {}).unwrap();
    let mut world = world(&next.site, SiteOnly);
    let of = ["ali:sesame", "bob:sesame"].map(|pair| get("/private/", pair));
    assert_eq!(statuses(&mut world, &of), [401, 200]);
    let web = world.server.transports.stack().app();
    let prepared = web.prepared().to_vec();
    let reloaded = next.site.load_next(&path, &Limits::default(), |_| {});
    // A site with the same users was loaded again, or has another improvement, such as a compressed file.
    for (site, right) in [(&next.site, 1), (&reloaded.unwrap().site, 1)] {
        let (web, contents) = world.server.transports.stack_mut().parts_mut();
        web.change_site(Arc::clone(site), prepared.clone(), contents);
        assert_eq!(statuses(&mut world, &of), [401, 200]);
        assert_eq!(counts(&world).right, right);
    }
    assert_eq!(counts(&world).wrong, 3);

    fs::write(&users, "ali:sesame").unwrap();
    let failed = next.site.load_next(&path, &Limits::default(), |_| {});
    let failed = failed.unwrap_err().to_string();
    let start = format!(
        "{} has a mistake in line 1, column 5: the hash is neither",
        users.display()
    );
    assert!(failed.starts_with(&start), "{failed}");
    fs::remove_file(&users).unwrap();
    assert!(matches!(place.load(), Err(LoadError::Users { .. })));
}

/// A client asks for more pages than the server can queue, and reads nothing. Then the users change.
#[test]
fn a_request_that_waits_for_room_is_checked_against_the_users_of_then() {
    const FIRST: usize = 70;
    const LAST: usize = 90;
    let place = Place::new(&[]);
    let site = Arc::new(place.load().unwrap());
    let users = place.folder.path().join("users");
    fs::write(&users, USERS.replace("ali:", "bob:")).unwrap();
    let path = place.folder.path().join("site");
    let next = site.load_next(&path, &Limits::default(), |_| {}).unwrap();
    let mut world = world(&site, SiteOnly);
    let login = get("/private/", "ali:sesame");
    assert_eq!(statuses(&mut world, std::slice::from_ref(&login)), [200]);
    for pages in FIRST..=LAST {
        let close = request("GET", "/", "Connection: close\r\n");
        let bytes = [get("/page.html", "").repeat(pages), login.clone(), close].concat();
        let talk = Talk {
            bytes: bytes.into_bytes(),
            buffers: (2_000, 1 << 16),
            reads: (2_000, Duration::from_secs(1)),
            start: world.link.clock.now(),
            ..Talk::default()
        };
        world.client.connect(80, talk);
    }
    let change = world.link.clock.now() + Duration::from_millis(500);
    world.run_until(|_, now| now >= change);
    let (web, contents) = world.server.transports.stack_mut().parts_mut();
    let old = web.prepared();
    let prepared = next.origins.iter().map(|at| old[*at as usize]).collect();
    web.change_site(Arc::clone(&next.site), prepared, contents);
    assert!(world.run(|_| false));
    let mut statuses = Vec::new();
    for (index, pages) in (1..).zip(FIRST..=LAST) {
        let mut rest = world.received(index);
        for _ in 0..pages {
            assert_eq!(take_response(&mut rest, true).0, "HTTP/1.1 200 OK");
        }
        statuses.push(take_response(&mut rest, true).0["HTTP/1.1 ".len()..][..3].to_owned());
    }
    // As many requests of each connection were answered before the change, so the last ones come later.
    let of = |status| statuses.iter().filter(|one| **one == status).count();
    assert!(of("200") > 0 && of("401") > 0 && of("200") + of("401") == statuses.len());
    assert!(statuses.is_sorted(), "{statuses:?}");
}

#[test]
fn a_file_with_users_must_not_be_served() {
    let mut place = Place::new(&[]);
    let users = place.folder.path().join("site/.users");
    fs::write(&users, USERS).unwrap();
    let realm = format!("/={}", users.display());
    place.settings.add_basic_auth(&realm).unwrap();
    assert_eq!(place.load().unwrap().realms().len(), 2);
    place.settings.hidden = true;
    let refused = place.load().unwrap_err().to_string();
    assert!(refused.contains("is in the served folder"), "{refused}");
}

#[test]
fn a_message_about_a_file_with_users_names_the_link_and_its_target() {
    let mut place = Place::new(&[]);
    let at = |path: &str| place.folder.path().join(path);
    let (users, link, entry) = (at("users"), at("link"), at("site/private/copy.txt"));
    std::os::unix::fs::symlink("users", &link).unwrap();
    place.settings.realms.clear();
    let realm = format!("/private={}", link.display());
    place.settings.add_basic_auth(&realm).unwrap();
    fs::write(&users, "ali").unwrap();
    let named = format!("{} (a link to {})", link.display(), users.display());
    let refused = place.load().unwrap_err().to_string();
    assert_eq!(
        refused,
        format!(
            "{named} has a mistake in line 1, column 1: there is no colon; write NAME:HASH, as htpasswd -nB \
             NAME does"
        )
    );
    fs::write(&users, USERS).unwrap();
    assert!(place.load().is_ok());
    place.settings.follow_links = crate::root::FollowLinks::All;
    std::os::unix::fs::symlink(&users, &entry).unwrap();
    let refused = place.load().unwrap_err().to_string();
    assert_eq!(
        refused,
        format!(
            "{named} is {} too, which is in the served folder; move it out, because it has secrets",
            entry.display()
        )
    );
    fs::remove_file(&users).unwrap();
    let refused = place.load().unwrap_err().to_string();
    let start = format!("{} (a link to users) cannot be read: ", link.display());
    assert!(refused.starts_with(&start), "{refused}");
}

#[test]
fn a_request_whose_check_takes_too_long_gets_503_and_leaves_the_queue() {
    fn check<A: App>(app: A) {
        let (checks, is_stuck) = (Arc::new(Checks::default()), Rc::new(Cell::new(true)));
        let logins = |http: Http<A>, bell: &Bell| http.with_logins(Logins::new(&checks, bell));
        let (work, waits) = (Arc::clone(&checks), Rc::clone(&is_stuck));
        let work = move || {
            if !waits.get() {
                work.work_all();
            }
        };
        let site = Arc::new(Place::new(&[]).load().unwrap());
        let mut world = World::new(&site, app, SendMode::MemCopy, logins, work);
        let others = request("GET", "/", "Connection: close\r\n");
        for wrong in ["ali:1", "ali:2", "ali:3"] {
            world.connect(&[get("/private/", wrong), others.clone()].concat());
        }
        let requests = [get("/private/", "ali:sesame"), get("/page.html", "")];
        assert_eq!(statuses(&mut world, &requests), [503, 200]);
        let waited = world.link.clock.now().since(nmio::Instant::ZERO);
        assert!(waited >= ANSWER_TIMEOUT && waited < ANSWER_TIMEOUT + Duration::from_secs(1));
        assert_eq!(counts(&world).given_up, 4);
        // The late result is for nobody, and the next request waits for its own.
        is_stuck.set(false);
        assert_eq!(statuses(&mut world, &requests), [200, 200]);
        let LoginCounts { right, wrong, .. } = counts(&world);
        assert_eq!((right, wrong), (1, 1), "only the check that had begun");
    }
    check(SiteOnly);
    check(Leaves::<true>);
}

/// Leaves everything to the site.
#[derive(Debug)]
struct Leaves<const SEES_ALL: bool>;

impl<const SEES_ALL: bool> App for Leaves<SEES_ALL> {
    const SEES: Sees = if SEES_ALL {
        Sees::Everything
    } else {
        Sees::Missing
    };
    type State = ();
    type Message = ();

    fn on_request(&mut self, _: &Request<'_>, _: &mut Exchange<'_, ()>) -> Verdict {
        Verdict::Site
    }
}

#[test]
fn an_application_may_leave_protected_paths_to_the_site() {
    fn check<A: App>(app: A) {
        let mut world = Place::new(&[]).world(app);
        let of = |pair| ["/private/", "/private/missing", "/"].map(|path| get(path, pair));
        assert_eq!(statuses(&mut world, &of("")), [401, 401, 200]);
        assert_eq!(statuses(&mut world, &of("ali:wrong")), [401, 401, 200]);
        assert_eq!(statuses(&mut world, &of("ali:sesame")), [200, 404, 200]);
        assert_eq!((counts(&world).right, counts(&world).wrong), (1, 2));
        assert_eq!(world.server.transports.stack().app().in_progress(), 0);
    }
    check(Leaves::<true>);
    check(Leaves::<false>);
}

#[test]
fn a_link_does_not_lead_around_a_password() {
    let mut place = Place::new(&[]);
    place.settings.listings = true;
    let public = place.folder.path().join("site/public");
    fs::create_dir(&public).unwrap();
    for (link, target) in [
        ("file.txt", "../private/deep/a b.txt"),
        ("deep", "../private/deep"),
    ] {
        std::os::unix::fs::symlink(target, public.join(link)).unwrap();
    }
    // The answer to OPTIONS does not tell whether there is a file, either.
    place
        .settings
        .add_header("/* Access-Control-Allow-Origin: *")
        .unwrap();
    let mut world = place.world(SiteOnly);
    let paths = [
        "/public/file.txt",
        "/public/deep/a%20b.txt",
        "/public/deep/",
        "/public/deep",
        "/public/deep/none/x",
        "/public/",
    ];
    let of = |pair| paths.map(|path| get(path, pair));
    assert_eq!(
        statuses(&mut world, &of("")),
        [401, 401, 401, 401, 401, 200]
    );
    assert_eq!(
        statuses(&mut world, &of("ali:sesame")),
        [200, 200, 200, 301, 404, 200]
    );
    let asked = ["/private/deep/a%20b.txt", "/private/deep/none"];
    let asked = asked.map(|path| request("OPTIONS", path, "Origin: https://b.test\r\n"));
    assert_eq!(statuses(&mut world, &asked), [401, 401]);
}

#[test]
fn a_list_has_only_entries_that_need_no_other_password() {
    let mut place = Place::new(&[]);
    place.settings.listings = true;
    let site = place.folder.path().join("site");
    for path in ["public/inner", "private/deep/inner"] {
        fs::create_dir_all(site.join(path)).unwrap();
        fs::write(site.join(path).join("x"), "x").unwrap();
        let users = place.folder.path().join("users");
        let realm = format!("/{path}={}", users.display());
        place.settings.add_basic_auth(&realm).unwrap();
    }
    fs::write(site.join("public/open.txt"), "x").unwrap();
    std::os::unix::fs::symlink("../private/deep", site.join("public/linked")).unwrap();
    let mut world = place.world(SiteOnly);
    let mut names = |path: &str| {
        let paths = [path.to_owned(), format!("{path}index.json")];
        let found = exchange(&mut world, &paths.map(|path| get(&path, "ali:sesame")));
        let json: serde_json::Value = serde_json::from_str(&found[1].1).unwrap();
        let entries = json["entries"].as_array().unwrap();
        let names = entries.iter().map(|entry| entry["name"].as_str().unwrap());
        let names: Vec<_> = names.map(str::to_owned).collect();
        assert!(!found[0].1.contains("inner") && found[0].1.contains(&names[0]));
        names
    };
    assert_eq!(names("/public/"), ["open.txt"]);
    assert_eq!(names("/public/linked/"), ["a b.txt"]);
    assert_eq!(names("/private/deep/"), ["a b.txt"]);
}

#[test]
fn the_question_for_a_password_may_have_its_own_text() {
    let mut place = Place::new(&[]);
    place.settings.realm_texts = vec!["/private/=F\u{fc}r uns".parse().unwrap()];
    let site = place.load().unwrap();
    let field = "\r\nWWW-Authenticate: Basic realm=\"F\u{fc}r uns\", charset=\"UTF-8\"\r\n";
    let challenge = site.reply(site.realms()[0].first);
    let head = std::str::from_utf8(challenge.head()).unwrap();
    assert!(head.contains(field), "{head}");
    place.settings.realm_texts = vec!["/other=x".parse().unwrap()];
    let error = place.load().unwrap_err().to_string();
    assert!(
        error.contains("names /other, but --basic-auth does not"),
        "{error}"
    );
    for wrong in [
        "",
        "/a",
        "a=b",
        "/a=",
        "/a=\"b\"",
        "/a=b\\",
        "/a=b\nc",
        &format!("/a={}", "x".repeat(201)),
    ] {
        let error = wrong
            .parse::<crate::login::RealmText>()
            .unwrap_err()
            .to_string();
        assert!(error.contains("write it as in /admin="), "{wrong}: {error}");
    }
}

#[path = "login_app_tests.rs"]
mod beside_an_application;

#[path = "login_rules_tests.rs"]
mod beside_rules;
