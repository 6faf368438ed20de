#!/usr/bin/env bash
# Installs what a make target needs from the operating system, when it is missing, and says so.
#
#   scripts/prerequisites.sh postgres pgbouncer sshd prometheus chromium axe tinyproxy descriptions cc node
#
# postgres: server programs of PostgreSQL 14 or newer, which the tests and the one-machine mode start
#           (not needed when BULLPEN_DATABASE_URL names a database).
# pgbouncer: PgBouncer, a connection pooler through which tests reach PostgreSQL (BULLPEN_PGBOUNCER names another program). No server of the system
#           is started.
# sshd:     OpenSSH's server, and a library by which it knows the users of a model Mac: what tests of a Mac's bootstrap log in to. No server of
#           the system is started.
# chromium: a browser without a screen, in which the console's pages are tested (BULLPEN_CHROMIUM names another).
# axe:      axe-core, the accessibility rules that the console's pages are held to: an npm package that test/kit/npm/axe/package-lock.json pins. It is
#           kept in the cache (BULLPEN_CACHE), and runs in the browser alone.
# tinyproxy: a forward proxy, through which tests reach GitHub's stand-in (BULLPEN_TINYPROXY names another program).
# prometheus: Prometheus, which a test has scrape the fleet to ask it what the dashboard asks. No server of the system is started.
# descriptions: GitHub's descriptions of its webhooks and its REST API, npm packages that test/descriptions/package-lock.json pins. They are kept in
#           the cache (BULLPEN_CACHE), and nothing of them is run.
# cc:       a C compiler and its headers, which Go's race detector and sqlc's parser need.
# node:     what a Kubernetes node needs beside the programs that `make node` compiles: CNI plug-ins, iptables, ipset, nftables and conntrack,
#           libseccomp's headers, with which runc is compiled, and D-Bus and systemd-logind, by which a kubelet learns of a shutdown. No service of the
#           system is started. Only for root on Linux: others cannot run a node.
set -euo pipefail

say() { echo "prerequisites: $*" >&2; }

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		say "sudo asks for your password to run: $*"
		sudo "$@"
	else
		say "cannot become root to run: $*"
		exit 1
	fi
}

apt_install() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

newest_postgres() {
	local dir major best=0
	for dir in ${PATH//:/ } /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin \
		/usr/local/opt/postgresql@*/bin /home/linuxbrew/.linuxbrew/opt/postgresql@*/bin /usr/local/pgsql/bin; do
		if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then
			major=$("$dir/postgres" --version | sed -E 's/[^0-9]*([0-9]+).*/\1/')
			if [ "$major" -gt "$best" ]; then best=$major; fi
		fi
	done
	echo "$best"
}

need_postgres() {
	if [ -n "${BULLPEN_DATABASE_URL:-}" ]; then return; fi
	local found
	found=$(newest_postgres)
	if [ "$found" -ge 14 ]; then return; fi
	if command -v apt-get >/dev/null; then
		say "PostgreSQL 14 or newer is missing: installing Debian's package 'postgresql' (no server of the system is set up)"
		# Debian's package creates and starts a cluster of its own unless this is turned off; only the programs are needed here.
		local conf=/etc/postgresql-common/createcluster.d/bullpen.conf
		as_root mkdir -p "$(dirname "$conf")"
		as_root sh -c "echo 'create_main_cluster = false' >$conf"
		apt_install postgresql || { as_root rm -f "$conf"; exit 1; }
		as_root rm -f "$conf"
	elif command -v brew >/dev/null; then
		say "PostgreSQL 14 or newer is missing: installing Homebrew's postgresql@17"
		brew install postgresql@17 >&2
	else
		say "PostgreSQL 14 or newer is missing, and there is neither apt-get nor brew: install it, or set BULLPEN_DATABASE_URL"
		exit 1
	fi
}

need_pgbouncer() {
	# Debian's program is where only root's PATH leads.
	if command -v "${BULLPEN_PGBOUNCER:-pgbouncer}" >/dev/null || [ -x /usr/sbin/pgbouncer ]; then return; fi
	if command -v brew >/dev/null; then
		say "PgBouncer is missing: installing Homebrew's pgbouncer"
		brew install pgbouncer >&2
		return
	fi
	if ! command -v apt-get >/dev/null; then
		say "PgBouncer is missing, and there is neither apt-get nor brew: install it, or name it with BULLPEN_PGBOUNCER"
		exit 1
	fi
	say "PgBouncer is missing: installing Debian's package 'pgbouncer' (no server of the system is started)"
	install_without_service yes "pgbouncer.service pgbouncer.socket" pgbouncer
}

need_cc() {
	local compiler=${CC:-cc}
	if echo '#include <stdlib.h>' | command "$compiler" -x c -fsyntax-only - 2>/dev/null; then return; fi
	if command -v apt-get >/dev/null; then
		say "a C compiler is missing (Go's race detector needs one): installing gcc and libc6-dev"
		apt_install gcc libc6-dev
	else
		say "a C compiler is missing (Go's race detector needs one): install one (on macOS: xcode-select --install)"
		exit 1
	fi
}

have_nss_wrapper() {
	compgen -G '/usr/lib*/libnss_wrapper.so' >/dev/null || compgen -G '/usr/lib/*/libnss_wrapper.so' >/dev/null
}

need_sshd() {
	if [ -x /usr/sbin/sshd ] && command -v ssh-keygen >/dev/null && have_nss_wrapper; then return; fi
	if [ "$(uname -s)" != Linux ]; then
		say "the model of a Mac, which some tests log in to, runs on Linux only: those tests are left out"
		return
	fi
	if ! command -v apt-get >/dev/null; then
		say "OpenSSH's server (/usr/sbin/sshd) or libnss_wrapper is missing, and there is no apt-get: install both"
		exit 1
	fi
	say "OpenSSH's server is missing: installing Debian's packages 'openssh-server' and 'libnss-wrapper' (no server of the system is started)"
	local server=no
	if [ ! -x /usr/sbin/sshd ]; then server=yes; fi
	install_without_service "$server" "ssh.service ssh.socket" openssh-server openssh-client libnss-wrapper
}

# Some of Debian's packages start a server, now and at every boot, unless this is turned off; only the program is needed here.
#   install_without_service yes|no UNITS PACKAGE...     (no: the server was there before, and stays as it is)
install_without_service() {
	local fresh=$1 units=$2 policy=/usr/sbin/policy-rc.d ours=no failed=no
	shift 2
	if [ "$fresh" = yes ] && [ ! -e "$policy" ]; then
		ours=yes
		as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
	fi
	apt_install "$@" || failed=yes
	if [ "$ours" = yes ]; then
		as_root rm -f "$policy"
		# shellcheck disable=SC2086 # several units
		if command -v systemctl >/dev/null; then as_root systemctl disable -q $units 2>/dev/null || true; fi
	fi
	if [ "$failed" = yes ]; then exit 1; fi
}

need_prometheus() {
	if command -v prometheus >/dev/null; then return; fi
	if command -v brew >/dev/null; then
		say "Prometheus is missing: installing Homebrew's prometheus"
		brew install prometheus >&2
		return
	fi
	if ! command -v apt-get >/dev/null; then
		say "Prometheus is missing, and there is no apt-get: install it (prometheus has to be in the PATH)"
		exit 1
	fi
	say "Prometheus is missing: installing Debian's package 'prometheus' (no server of the system is started)"
	install_without_service yes prometheus.service prometheus
}

need_tinyproxy() {
	if command -v "${BULLPEN_TINYPROXY:-tinyproxy}" >/dev/null; then return; fi
	if command -v apt-get >/dev/null; then
		say "tinyproxy is missing: installing Debian's package 'tinyproxy-bin', which has no service"
		apt_install tinyproxy-bin
	elif command -v brew >/dev/null; then
		say "tinyproxy is missing: installing Homebrew's tinyproxy"
		brew install tinyproxy >&2
	else
		say "tinyproxy is missing, and there is neither apt-get nor brew: install it, or name it with BULLPEN_TINYPROXY"
		exit 1
	fi
}

need_chromium() {
	local name
	for name in "${BULLPEN_CHROMIUM:-chromium}" chromium-browser google-chrome google-chrome-stable; do
		if command -v "$name" >/dev/null; then return; fi
	done
	if command -v apt-get >/dev/null; then
		say "Chromium is missing: installing Debian's package 'chromium'"
		apt_install chromium
	else
		say "Chromium is missing: install it or Chrome, or name one with BULLPEN_CHROMIUM"
		exit 1
	fi
}

need_npm() {
	if command -v npm >/dev/null; then return; fi
	if command -v brew >/dev/null; then
		say "npm is missing: installing Homebrew's node"
		brew install node >&2
	elif command -v apt-get >/dev/null; then
		say "npm is missing: installing Debian's package 'npm'"
		apt_install npm
	else
		say "npm is missing, and there is neither apt-get nor brew: install Node.js with npm"
		exit 1
	fi
}

# Installs what DIRECTORY/package-lock.json names into the cache, once, and has KEEP take away what no test reads of it.
#   npm_packages NAME DIRECTORY KEEP
npm_packages() {
	local name at fresh
	name="$(git hash-object --no-filters "$2/package-lock.json")"
	at="${BULLPEN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bullpen}/$1/${name:0:16}"
	if [ -d "$at" ]; then return; fi
	need_npm
	say "installing npm packages into the cache: $1"
	mkdir -p "$(dirname "$at")"
	fresh="$(mktemp -d "$at.XXXXXX")"
	cp "$2/package.json" "$2/package-lock.json" "$fresh"
	npm ci --prefix "$fresh" --ignore-scripts --no-audit --no-fund --loglevel=error >&2 || { rm -rf "$fresh"; exit 1; }
	"$3" "$fresh/node_modules"
	if [ -d "$at" ]; then rm -rf "$fresh"; else mv "$fresh" "$at"; fi # another process may have been first
}

tests="$(cd "$(dirname "$0")/../test" && pwd)"

need_descriptions() { npm_packages descriptions "$tests/descriptions" keep_descriptions; }

# Of half a gigabyte of documents those stay that tests read, and no program.
keep_descriptions() {
	find "$1" -type f ! -path '*/webhooks-examples/*' ! -name api.github.com.json ! -name ghec.json ! -name ghes-3.14.json ! -name package.json ! -name 'LICENSE*' -delete
}

need_axe() { npm_packages axe "$tests/kit/npm/axe" keep_axe; }

keep_axe() { find "$1" -type f ! -name axe.min.js ! -name package.json ! -name 'LICENSE*' -delete; }

have_cni() { compgen -G '/usr/lib/cni/bridge' >/dev/null || compgen -G '/opt/cni/bin/bridge' >/dev/null; }

need_node() {
	if [ "$(uname -s)" != Linux ] || [ "$(id -u)" != 0 ]; then return; fi
	local program missing=no
	for program in nsenter iptables ipset nft conntrack; do
		command -v "$program" >/dev/null || missing=yes
	done
	local bus=yes
	if [ ! -x /usr/bin/dbus-daemon ] || [ ! -x /usr/lib/systemd/systemd-logind ]; then bus=no; fi
	if [ $missing = no ] && [ $bus = yes ] && have_cni && [ -e /usr/include/seccomp.h ] && command -v pkg-config >/dev/null; then return; fi
	if ! command -v apt-get >/dev/null; then
		say "tests of a Kubernetes node need CNI plug-ins, iptables, ipset, nftables, conntrack, libseccomp's headers, D-Bus and systemd-logind, and there is no apt-get: install them"
		exit 1
	fi
	say "what a Kubernetes node needs is missing: installing Debian's containernetworking-plugins, iptables, ipset, nftables, conntrack, kmod, libseccomp-dev, dbus and systemd"
	apt_install util-linux iptables ipset nftables conntrack kmod containernetworking-plugins libseccomp-dev pkg-config
	if [ $bus = no ]; then install_without_service yes "dbus.service dbus.socket" dbus systemd; fi
}

for need in "$@"; do
	case $need in
	postgres | pgbouncer | cc | sshd | prometheus | chromium | axe | tinyproxy | descriptions | node) "need_$need" ;;
	*)
		say "unknown prerequisite '$need'"
		exit 2
		;;
	esac
done
