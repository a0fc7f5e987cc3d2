#!/bin/busybox sh
# The first program of a guest. It runs the command lines that arrive on the second serial port,
# and sends back their output and their exit status.
/bin/busybox --install -s /bin
export PATH=/usr/local/bin:/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
mkdir -p /sys/fs/bpf /dev/shm
mount -t bpf none /sys/fs/bpf
while read -r module options; do insmod /modules/$module.ko $options; done </modules/order
# busybox prefers its own ip, which knows no XDP programs, and its own tc, which knows few disciplines.
ip() { /usr/local/bin/ip "$@"; }
tc() { /usr/local/bin/tc "$@"; }
ip link set lo up
# Only crashes may appear on the console, between what the channel's log says.
dmesg -n 1

# Starts a server, and prints its start block.
start() {
    "$@" >/tmp/output 2>&1 &
    server=$!
    for i in $(seq 600); do
        if grep -q '^ *try:' /tmp/output; then cat /tmp/output; return 0; fi
        if ! kill -0 $server; then break; fi
        usleep 100000
    done 2>/dev/null
    cat /tmp/output
    return 1
}

# Stops the server, and prints everything that it has written.
stop() {
    kill -TERM $server
    wait $server
    status=$?
    cat /tmp/output
    return $status
}

# Connects two netmap ports with one of netmap's programs. vale-ctl ends when the kernel has
# connected them. bridge copies packets until it is ended.
join() {
    case $1 in
    vale-ctl) "$@" ;;
    *)
        "$@" >/tmp/join 2>&1 &
        joint=$!
        sleep 2
        kill -0 $joint || { cat /tmp/join; return 1; }
        ;;
    esac
}

# Separates two netmap ports.
part() {
    case $1 in
    vale-ctl) "$1" -d "$3" ;;
    *)
        kill $joint
        wait $joint || true
        ;;
    esac
}

stty -F /dev/ttyS1 raw -echo
exec </dev/ttyS1 >/dev/ttyS1
echo ready
while read -r line; do
    eval "$line" 2>&1
    printf '\n::status %d\n' $?
done
poweroff -f
