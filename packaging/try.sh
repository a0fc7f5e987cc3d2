# Installs the packages in a container, starts, reloads and stops each service, and removes all.
set -eux
cd /root

ip netns add client
ip link add srv0 type veth peer name cli0 netns client
ip address add 10.9.0.1/24 dev srv0
ip link set srv0 up
ip -n client address add 10.9.0.2/24 dev cli0
ip -n client link set cli0 up

mkdir -p /srv/www
echo 'a page' >/srv/www/index.html
printf '@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.\nns 60 A 192.0.2.53\n' >/srv/try.test.zone

fetch() {
    test "$(ip netns exec client curl -sS -m 10 http://10.9.0.1/)" = "$1"
}
ask() {
    test "$(ip netns exec client dig +short +time=5 @10.9.0.1 ns.try.test)" = 192.0.2.53
}

for name in sandstorm namestorm storm; do
    dpkg -i $name.deb
    dpkg -i $name.deb
    getent passwd $name
    zcat -f /usr/share/man/man1/$name-serve.1* | grep -q device
    test -s /usr/share/bash-completion/completions/$name
    # The commented example has every key, but neither a folder nor a zone.
    test -s /etc/$name/$name.toml
    cat >/etc/$name/$name.toml <<END
[network]
device = "xdp:srv0,partial-checksums"
[[web]]
root = "/srv/www"
[[dns]]
zones-from = ["/srv/*.zone"]
END
    # A container's manager may be unable to raise the limit on locked memory.
    mkdir -p /etc/systemd/system/$name.service.d
    cat >/etc/systemd/system/$name.service.d/memory.conf <<END
[Service]
AmbientCapabilities=CAP_IPC_LOCK
CapabilityBoundingSet=CAP_IPC_LOCK
END
    systemctl daemon-reload
    echo 'a page' >/srv/www/index.html
    systemctl start $name || { journalctl --no-pager -u $name; exit 1; }
    test $name = namestorm || fetch 'a page'
    test $name = sandstorm || ask
    echo 'a new page' >/srv/www/index.html
    systemctl reload $name
    test $name = namestorm || until fetch 'a new page'; do sleep 0.1; done
    systemctl is-active $name
    systemctl stop $name
    test "$(systemctl show -P Result $name)" = success
    journalctl --no-pager -u $name | grep 'uptime:'
    test -d /var/log/$name
    dpkg --purge $name
    test ! -e /usr/bin/$name
    test ! -e /etc/$name
    test ! -e /var/log/$name
    test ! -e /var/cache/$name
    test ! -e /lib/systemd/system/$name.service
    test -z "$(getent passwd $name)"
done
echo all is well
