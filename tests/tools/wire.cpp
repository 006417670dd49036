// A wire between two network namespaces, with the faults of a long one: delay, jitter, loss, reordering, cuts. The kernel may lack netem; this needs TUN
// alone. It makes a TUN device of one name in each, and carries packets between them; what happens to the n-th packet of a direction follows from the
// seed and n.
//   wire /run/netns/a /run/netns/b wire0 --seed 7 --delay-ms 20 --jitter-ms 2 --loss 0.01 --reorder 0.005
// Says "ready" when the devices are there (without addresses), reads lines from stdin ("cut 30": nothing passes for 30 seconds), and ends at its end
// with one line of JSON: what it carried, lost and put before others. Needs to be root. tc tbf on the devices limits the rate.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <queue>
#include <string>
#include <vector>

namespace {
using Clock = std::chrono::steady_clock;

[[noreturn]] void end(const std::string& what) {
  std::fprintf(stderr, "wire: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

struct Faults {
  std::uint64_t seed = 1;
  double delay_ms = 0, jitter_ms = 0, loss = 0, reorder = 0;
};

// A TUN device in the namespace of that path.
int open_device(const char* space, const char* name) {
  const int in = open(space, O_RDONLY | O_CLOEXEC);
  if (in < 0 || setns(in, CLONE_NEWNET) != 0) end(std::string("entering the network namespace ") + space);
  close(in);
  const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  if (device < 0 || ioctl(device, TUNSETIFF, &request) != 0) end(std::string("making the device ") + name);
  return device;
}

// Uniform in [0, 1): the `which`-th number of packet n of a direction.
double number(const Faults& faults, int direction, std::uint64_t n, int which) {
  std::uint64_t x = faults.seed * 0x9E3779B97F4A7C15u + n * 8 + static_cast<std::uint64_t>(direction * 4 + which);
  for (const std::uint64_t by : {0xBF58476D1CE4E5B9u, 0x94D049BB133111EBu}) x = (x ^ (x >> 30)) * by;
  return static_cast<double>((x ^ (x >> 31)) >> 11) / static_cast<double>(std::uint64_t{1} << 53);
}

struct Packet {
  Clock::time_point due;
  std::uint64_t order;
  std::vector<char> bytes;
  bool operator<(const Packet& other) const { return std::pair(due, order) > std::pair(other.due, other.order); }  // the earliest on top
};

struct Direction {
  int from, to;
  std::priority_queue<Packet> under_way = {};
  Clock::time_point last = {};
  std::uint64_t seen = 0, lost = 0, cut = 0, reordered = 0, bytes = 0;
};

void take(Direction& way, int index, const Faults& faults, bool is_cut) {
  char packet[65536];
  for (ssize_t size; (size = read(way.from, packet, sizeof packet)) > 0;) {
    const std::uint64_t n = way.seen++;
    way.bytes += static_cast<std::uint64_t>(size);
    if (is_cut) {
      ++way.cut;
      continue;
    }
    if (number(faults, index, n, 0) < faults.loss) {
      ++way.lost;
      continue;
    }
    const auto after = [](double ms) { return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms)); };
    Clock::time_point due = Clock::now() + after(faults.delay_ms + faults.jitter_ms * number(faults, index, n, 1));
    if (number(faults, index, n, 2) < faults.reorder) {
      due -= after(faults.delay_ms / 4);  // before some that went earlier
      ++way.reordered;
    } else {
      way.last = due = std::max(due, way.last);
    }
    way.under_way.push({due, n, std::vector<char>(packet, packet + size)});
  }
}

void give(Direction& way) {
  while (!way.under_way.empty() && way.under_way.top().due <= Clock::now()) {
    const std::vector<char>& bytes = way.under_way.top().bytes;
    if (write(way.to, bytes.data(), bytes.size()) < 0 && errno == EAGAIN) return;
    way.under_way.pop();  // of a device that is down it is lost
  }
}
}  // namespace

int main(int count, char** words) {
  if (count < 4 || count % 2 != 0) {
    std::fputs("wire: allowed is wire NAMESPACE NAMESPACE DEVICE [--seed N] [--delay-ms X] [--jitter-ms X] [--loss P] [--reorder P]\n", stderr);
    return 2;
  }
  Faults faults;
  for (int i = 4; i < count; i += 2) {
    const std::string option = words[i];
    if (option == "--seed") faults.seed = std::strtoull(words[i + 1], nullptr, 10);
    else if (option == "--delay-ms") faults.delay_ms = std::atof(words[i + 1]);
    else if (option == "--jitter-ms") faults.jitter_ms = std::atof(words[i + 1]);
    else if (option == "--loss") faults.loss = std::atof(words[i + 1]);
    else if (option == "--reorder") faults.reorder = std::atof(words[i + 1]);
    else {
      std::fprintf(stderr, "wire: there is no option %s\n", option.c_str());
      return 2;
    }
  }
  const int a = open_device(words[1], words[3]), b = open_device(words[2], words[3]);
  Direction ways[2] = {{a, b}, {b, a}};
  std::puts("ready");
  std::fflush(stdout);
  Clock::time_point cut_until{};
  std::string line;
  for (bool open_input = true; open_input;) {
    pollfd wanted[3] = {{a, POLLIN, 0}, {b, POLLIN, 0}, {0, POLLIN, 0}};
    auto wait = std::chrono::nanoseconds(std::chrono::milliseconds(100));
    for (const Direction& way : ways)
      if (!way.under_way.empty()) wait = std::min(wait, std::chrono::nanoseconds(way.under_way.top().due - Clock::now()));
    const timespec limit{0, std::max<std::int64_t>(0, wait.count())};
    ppoll(wanted, 3, &limit, nullptr);
    for (int i = 0; i < 2; ++i) {
      if (wanted[i].revents & POLLIN) take(ways[i], i, faults, Clock::now() < cut_until);
      give(ways[i]);
    }
    if (!(wanted[2].revents & (POLLIN | POLLHUP))) continue;
    char text[256];
    const ssize_t size = read(0, text, sizeof text);
    open_input = size > 0;
    line.append(text, static_cast<std::size_t>(std::max<ssize_t>(0, size)));
    for (std::size_t newline; (newline = line.find('\n')) != std::string::npos; line.erase(0, newline + 1))
      if (line.rfind("cut ", 0) == 0) cut_until = Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(1000 * std::atof(line.c_str() + 4)));
  }
  const auto sum = [&](auto what) { return static_cast<unsigned long long>(what(ways[0]) + what(ways[1])); };
  std::printf("{\"packets\": %llu, \"bytes\": %llu, \"lost\": %llu, \"cut\": %llu, \"reordered\": %llu}\n", sum([](const Direction& w) { return w.seen; }),
              sum([](const Direction& w) { return w.bytes; }), sum([](const Direction& w) { return w.lost; }), sum([](const Direction& w) { return w.cut; }),
              sum([](const Direction& w) { return w.reordered; }));
  return 0;
}
