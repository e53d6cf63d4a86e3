/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reproducer: MPTCP delivers wrong bytes when a subflow joins while the receiver reads.
 * Needs root, iproute2 and a kernel with MPTCP, veth and TBF; nothing else.
 *
 *   cc -O2 -pthread -o churn churn.c
 *   ./churn [-o OPERATIONS] [-i MS] [-n CONNECTIONS] [-t TRANSFERS] [-s MS] [-r MBIT] [-p PATHS]
 *           [-w BYTES] [-a ALGORITHM] [-c] [-C] [-R] [-N NAME]
 *
 * Two namespaces, NAME-c and NAME-s, joined by PATHS veth pairs (TBF at MBIT each).  CONNECTIONS
 * clients send TRANSFERS streams of MS milliseconds each, one after the other, to the server (-R:
 * the server sends).  Meanwhile one operation about every MS milliseconds (-i), on a path other
 * than the first.  OPERATIONS is a set of letters, so that each can be tried alone; "-" is none:
 *
 *   d  delete the server's `signal` endpoint        a  add it again with the same id
 *   n  add it again with an id not used before      s  add it as `backup`, clear that 100 ms later
 *   q  set it `backup`, wait 200 ms, delete it
 *   D  delete the client's `subflow` endpoint       A  add it again with the same id
 *   S  add it as `backup`, clear that 100 ms later
 *   l  client's link down                           u  link up again
 *   k  SOCK_DESTROY (ss -K) of the client's subflows of one path
 *   b  toggle the `backup` flag of the server's endpoint
 *
 * Every 8-byte word of a stream is its connection's number and its index, so that wrong bytes say
 * which offset they belong to.  -c: with DSS checksums.  -C: paths come from the client's
 * endpoints, not from the server's.  Exit code: 1 if any byte was wrong.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

#define MAX_CONNECTIONS 256
#define MAX_PATHS	8
#define MAX_REPORTS	4
#define RECEIVE_BYTES	65536
#define STALL_TIMEOUT_S 30
#define SETTLE_MS	100
#define DRAIN_MS	200
#define BASE_PORT	5400

static struct {
	int connections, transfers, duration_ms, rate_mbit, paths, interval_ms, chunk_bytes;
	const char *operations, *algorithm, *name;
	bool checksum, client_endpoints, reverse;
} config = {.connections = 1,
	    .transfers = 1,
	    .duration_ms = 4000,
	    .rate_mbit = 100,
	    .paths = 2,
	    .interval_ms = 60,
	    .chunk_bytes = 65536,
	    .operations = "da",
	    .algorithm = "reno",
	    .name = "mptcpchurn"};

static _Atomic unsigned int wrong, broken, complete, operations;
static _Atomic unsigned long long total_bytes;
static atomic_bool stop;

static int run(const char *format, ...)
{
	char command[512];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	return system(command);
}

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(2);
}

static void enter(char end)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s-%c", config.name, end);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	must(fd >= 0 && setns(fd, CLONE_NEWNET) == 0, path);
	close(fd);
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void pause_ms(int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&t, NULL);
}

/* --- the network --------------------------------------------------------------------------- */

static int add_endpoint(char end, int path, int id, const char *flags)
{
	return run("ip -n %s-%c mptcp endpoint add 10.77.%d.%d id %d %s 2>/dev/null", config.name,
		   end, path, end == 'c' ? 1 : 2, id, flags);
}

static int change_endpoint(char end, const char *verb, int id, const char *flags)
{
	return run("ip -n %s-%c mptcp endpoint %s id %d %s 2>/dev/null", config.name, end, verb, id,
		   flags);
}

static void remove_network(void)
{
	run("ip netns del %s-c 2>/dev/null; ip netns del %s-s 2>/dev/null", config.name,
	    config.name);
}

static void make_network(void)
{
	remove_network();
	for (const char *end = "cs"; *end; end++) {
		must(run("ip netns add %s-%c", config.name, *end) == 0, "ip netns add");
		run("ip -n %s-%c link set lo up", config.name, *end);
		run("ip netns exec %s-%c sysctl -qw net.ipv4.tcp_congestion_control=%s "
		    "net.mptcp.checksum_enabled=%d",
		    config.name, *end, config.algorithm, config.checksum);
		run("ip -n %s-%c mptcp limits set subflows 8 add_addr_accepted 8", config.name,
		    *end);
	}
	for (int i = 0; i < config.paths; i++) {
		must(run("ip link add p%d netns %s-c type veth peer name p%d netns %s-s", i,
			 config.name, i, config.name) == 0,
		     "ip link add");
		for (int e = 0; e < 2; e++) {
			char end = "cs"[e];

			run("ip -n %s-%c addr add 10.77.%d.%d/24 dev p%d", config.name, end, i,
			    e + 1, i);
			run("ip -n %s-%c link set p%d up", config.name, end, i);
			run("tc -n %s-%c qdisc add dev p%d root tbf rate %dmbit burst 10kb limit "
			    "150kb",
			    config.name, end, i, config.rate_mbit);
		}
		if (i && config.client_endpoints)
			add_endpoint('c', i, i, "subflow");
		else if (i)
			add_endpoint('s', i, i, "signal");
	}
}

/* --- churn ----------------------------------------------------------------------------------- */

static void add_settled(char end, int path, int id, const char *kind)
{
	char flags[32];

	snprintf(flags, sizeof(flags), "%s backup", kind);
	if (add_endpoint(end, path, id, flags) != 0)
		return;
	pause_ms(SETTLE_MS);
	change_endpoint(end, "change", id, "nobackup");
}

static void operate(char operation, int path)
{
	static bool backup[MAX_PATHS];
	static int id[MAX_PATHS];

	id[path] = id[path] ? id[path] : path;
	switch (operation) {
	case 'd':
		change_endpoint('s', "delete", id[path], "");
		break;
	case 'a':
		add_endpoint('s', path, id[path], "signal");
		break;
	case 'n':
		if (add_endpoint('s', path, id[path] % 200 + MAX_PATHS, "signal") == 0)
			id[path] = id[path] % 200 + MAX_PATHS;
		break;
	case 's':
		add_settled('s', path, id[path], "signal");
		break;
	case 'S':
		add_settled('c', path, path, "subflow");
		break;
	case 'q':
		change_endpoint('s', "change", id[path], "backup");
		pause_ms(DRAIN_MS);
		change_endpoint('s', "delete", id[path], "");
		break;
	case 'D':
		change_endpoint('c', "delete", path, "");
		break;
	case 'A':
		add_endpoint('c', path, path, "subflow");
		break;
	case 'l':
		run("ip -n %s-c link set p%d down", config.name, path);
		break;
	case 'u':
		run("ip -n %s-c link set p%d up", config.name, path);
		break;
	case 'b':
		backup[path] = !backup[path];
		change_endpoint('s', "change", id[path], backup[path] ? "backup" : "nobackup");
		break;
	case 'k':
		run("ip netns exec %s-c ss -KtH dst 10.77.%d.2 >/dev/null 2>&1", config.name, path);
		break;
	default:
		return;
	}
	operations++;
}

static void *churn(void *unused)
{
	uint64_t seed = (uint64_t)now_ms() | 1;
	size_t count = strlen(config.operations);

	while (!stop) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		operate(config.operations[(seed >> 33) % count],
			1 + (int)((seed >> 48) % (unsigned int)(config.paths - 1)));
		pause_ms(config.interval_ms / 2 +
			 (int)((seed >> 40) % (unsigned int)config.interval_ms));
	}
	return unused;
}

/* --- streams --------------------------------------------------------------------------------- */

static uint64_t word(int id, uint64_t index)
{
	return ((uint64_t)(id + 1) << 48) | index;
}

static uint8_t stream_byte(int id, uint64_t at)
{
	return (uint8_t)(word(id, at / 8) >> (at % 8 * 8));
}

static int send_stream(int fd, int id, uint64_t *sent)
{
	uint64_t *buffer = malloc((size_t)config.chunk_bytes);
	double end = now_ms() + config.duration_ms;
	int error = 0;
	char byte;

	while (!error && now_ms() < end) {
		for (int i = 0; i < config.chunk_bytes / 8; i++)
			buffer[i] = word(id, *sent / 8 + (uint64_t)i);
		for (int done = 0; !error && done < config.chunk_bytes;) {
			ssize_t n = send(fd, (char *)buffer + done,
					 (size_t)(config.chunk_bytes - done), MSG_NOSIGNAL);

			error = n <= 0 ? errno : 0;
			done += n > 0 ? (int)n : 0;
			*sent += n > 0 ? (uint64_t)n : 0;
		}
	}
	free(buffer);
	shutdown(fd, SHUT_WR);
	if (!error && recv(fd, &byte, 1, 0) < 0)
		error = errno;
	return error;
}

/* The stream's offset that the first whole words in `bytes` belong to, less that of `bytes`. */
static bool find_shift(int id, uint64_t at, const uint8_t *bytes, size_t length, int64_t *shift)
{
	for (size_t skip = 0; skip < 8 && skip + 16 <= length; skip++) {
		uint64_t first, second;

		memcpy(&first, bytes + skip, 8);
		memcpy(&second, bytes + skip + 8, 8);
		if (first >> 48 != (uint64_t)id + 1 || second != first + 1)
			continue;
		*shift = (int64_t)((first & 0xffffffffffff) * 8) - (int64_t)(at + skip);
		return true;
	}
	return false;
}

struct check {
	uint64_t at;
	int64_t shift;
	uint64_t since; /* the shift */
	unsigned int changes;
};

static void check_bytes(struct check *c, int id, const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		int64_t shift = c->shift;
		uint64_t at = c->at + i;

		if (bytes[i] == stream_byte(id, at + (uint64_t)shift))
			continue;
		if (!find_shift(id, at, bytes + i, length - i, &shift)) {
			if (!c->changes)
				printf("  WRONG at byte %llu, of no known offset\n",
				       (unsigned long long)at);
			c->changes++;
			continue;
		}
		if (c->shift && c->changes <= MAX_REPORTS)
			printf("  WRONG: %llu bytes at %llu are those of offset %llu (%+lld)\n",
			       (unsigned long long)(at - c->since), (unsigned long long)c->since,
			       (unsigned long long)(c->since + (uint64_t)c->shift),
			       (long long)c->shift);
		c->shift = shift;
		c->since = at;
		c->changes++;
	}
	c->at += length;
}

static int receive_stream(int fd, int id, struct check *c)
{
	uint8_t *buffer = malloc(RECEIVE_BYTES);
	ssize_t n;
	int error;

	while ((n = recv(fd, buffer, RECEIVE_BYTES, 0)) > 0)
		check_bytes(c, id, buffer, (size_t)n);
	error = n ? errno : 0;
	free(buffer);
	return error;
}

/* --- transfers ------------------------------------------------------------------------------- */

struct end {
	int id;
	bool sends;
	uint64_t sent;
	struct check check;
	int error;
};

static void carry(struct end *e, int fd)
{
	struct timeval t = {STALL_TIMEOUT_S, 0};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
	e->error =
		e->sends ? send_stream(fd, e->id, &e->sent) : receive_stream(fd, e->id, &e->check);
	close(fd);
}

static struct sockaddr_in address(int id)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)(BASE_PORT + id))};

	a.sin_addr.s_addr = htonl(0x0a4d0002u);
	return a;
}

static void *serve(void *argument)
{
	struct end *e = argument;

	carry(e, accept(e->error, NULL, NULL));
	return NULL;
}

static void judge(const struct end *client, const struct end *server)
{
	const struct end *from = client->sends ? client : server,
			 *to = client->sends ? server : client;
	bool ended_early = !from->error && !to->error && from->sent != to->check.at;

	total_bytes += to->check.at;
	if (to->check.changes || ended_early) {
		wrong++;
		printf("connection %d WRONG: %llu of %llu bytes, %u changes of offset\n",
		       client->id, (unsigned long long)to->check.at, (unsigned long long)from->sent,
		       to->check.changes);
	} else if (from->error || to->error) {
		broken++;
	} else {
		complete++;
	}
}

static void *connection(void *argument)
{
	int id = *(int *)argument, one = 1, listener;
	struct sockaddr_in there = address(id), here = there;

	here.sin_addr.s_addr = INADDR_ANY; /* joins come to the other addresses */
	enter('s');
	listener = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
	must(listener >= 0, "socket(IPPROTO_MPTCP)");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	must(bind(listener, (struct sockaddr *)&here, sizeof(here)) == 0, "bind");
	must(listen(listener, 8) == 0, "listen");
	enter('c');
	for (int i = 0; i < config.transfers; i++) {
		struct end client = {.id = id, .sends = !config.reverse};
		struct end server = {.id = id, .sends = config.reverse, .error = listener};
		int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
		pthread_t thread;

		must(connect(fd, (struct sockaddr *)&there, sizeof(there)) == 0, "connect");
		pthread_create(&thread, NULL, serve, &server);
		carry(&client, fd);
		pthread_join(thread, NULL);
		judge(&client, &server);
	}
	close(listener);
	return NULL;
}

/* --- what the kernel counted ----------------------------------------------------------------- */

static void *counters(void *end)
{
	char names[8192], values[8192], *n, *v, *n_next, *v_next;
	FILE *file;

	enter(*(char *)end);
	file = fopen("/proc/thread-self/net/netstat", "r");
	must(file != NULL, "netstat");
	printf("%s:", *(char *)end == 'c' ? "client" : "server");
	while (fgets(names, sizeof(names), file) && fgets(values, sizeof(values), file)) {
		if (strncmp(names, "MPTcpExt", 8) != 0)
			continue;
		n = strtok_r(names, " \n", &n_next);
		v = strtok_r(values, " \n", &v_next);
		while ((n = strtok_r(NULL, " \n", &n_next)) && (v = strtok_r(NULL, " \n", &v_next)))
			if (strcmp(v, "0") != 0)
				printf(" %s %s", n, v);
	}
	puts("");
	fclose(file);
	return NULL;
}

static void print_counters(char end)
{
	pthread_t thread;

	pthread_create(&thread, NULL, counters, &end);
	pthread_join(thread, NULL);
}

static bool parse(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "o:i:n:t:s:r:p:w:a:N:cCR")) != -1) {
		switch (option) {
		case 'o':
			config.operations = optarg;
			break;
		case 'i':
			config.interval_ms = atoi(optarg);
			break;
		case 'n':
			config.connections = atoi(optarg);
			break;
		case 't':
			config.transfers = atoi(optarg);
			break;
		case 's':
			config.duration_ms = atoi(optarg);
			break;
		case 'r':
			config.rate_mbit = atoi(optarg);
			break;
		case 'p':
			config.paths = atoi(optarg);
			break;
		case 'w':
			config.chunk_bytes = atoi(optarg) & ~7;
			break;
		case 'a':
			config.algorithm = optarg;
			break;
		case 'N':
			config.name = optarg;
			break;
		case 'c':
			config.checksum = true;
			break;
		case 'C':
			config.client_endpoints = true;
			break;
		case 'R':
			config.reverse = true;
			break;
		default:
			return false;
		}
	}
	return config.connections >= 1 && config.connections <= MAX_CONNECTIONS &&
	       config.paths >= 2 && config.paths <= MAX_PATHS && config.interval_ms >= 2 &&
	       config.chunk_bytes >= 8 && *config.operations;
}

int main(int argc, char **argv)
{
	pthread_t threads[MAX_CONNECTIONS], churner;
	int ids[MAX_CONNECTIONS];

	if (!parse(argc, argv))
		return 2;
	setlinebuf(stdout);
	make_network();
	pthread_create(&churner, NULL, churn, NULL);
	for (int i = 0; i < config.connections; i++) {
		ids[i] = i;
		pthread_create(&threads[i], NULL, connection, &ids[i]);
	}
	for (int i = 0; i < config.connections; i++)
		pthread_join(threads[i], NULL);
	stop = true;
	pthread_join(churner, NULL);
	print_counters('c');
	print_counters('s');
	printf("operations \"%s\": %u of %u transfers wrong, %u broken, %.0f MB, %u operations\n",
	       config.operations, wrong, wrong + broken + complete, broken,
	       (double)total_bytes / 1e6, operations);
	remove_network();
	return wrong > 0;
}
