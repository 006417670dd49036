#include "parallel/process_watch.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "base/byte_record.h"
#include "base/entropy.h"
#include "base/log.h"
#include "parallel/process_name.h"

namespace lockstep {

namespace {

constexpr int kWatchGroup = -1;
constexpr int kWithinMilliseconds = 10'000;  // a connection is made
constexpr auto kBeatEvery = std::chrono::milliseconds(500);
constexpr char kGoodBye = 'b', kLost = 'l', kBeat = 'h';
constexpr char kEnded = 'e', kSilent = 's';
struct Word {
  char what = 0;
  char why = 0;              // of kLost
  std::int32_t process = 0;  // too
};

class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

bool ready(int descriptor, short events, int milliseconds) {
  pollfd wanted{descriptor, events, 0};
  return ::poll(&wanted, 1, milliseconds) == 1;
}

std::vector<std::uint32_t> addresses_here() {
  std::vector<std::uint32_t> found{htonl(INADDR_LOOPBACK)};
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return found;
  for (const ifaddrs* at = all; at; at = at->ifa_next)
    if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && (at->ifa_flags & IFF_UP) && !(at->ifa_flags & IFF_LOOPBACK))
      found.push_back(reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr.s_addr);
  ::freeifaddrs(all);
  return found;
}

struct Greeting {
  std::uint64_t secret;
  std::int32_t process;
};

Socket connected(std::uint32_t address, std::uint16_t port, const Greeting& greeting) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_in to{.sin_family = AF_INET, .sin_port = port, .sin_addr = {address}, .sin_zero = {}};
  if (!socket || (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0 && errno != EINPROGRESS)) return Socket();
  if (!ready(socket.get(), POLLOUT, 2000)) return Socket();
  if (::send(socket.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(greeting))) return Socket();
  char welcome = 0;
  if (!ready(socket.get(), POLLIN, 2000) || ::recv(socket.get(), &welcome, 1, 0) != 1) return Socket();
  return socket;
}

// What all processes say to all, by process. They have begun by now, so one of which nothing comes cannot be reached from here; all are told so.
std::vector<std::string> first_words(ProcessMail& mail, const std::string& mine, std::chrono::seconds silence) {
  const int own = mail.process();
  std::vector<std::string> words(static_cast<std::size_t>(mail.processes()));
  words[static_cast<std::size_t>(own)] = mine;
  mail.begin_run();
  RunEnd end;
  int asked = 0;
  try {
    const MailPatience patience(silence);
    for (int p = 0; p < mail.processes(); ++p)
      if (p != own) mail.post(p, {.group = kWatchGroup, .from = own, .to = p}, mine);
    for (; asked < mail.processes(); ++asked)
      if (asked != own) words[static_cast<std::size_t>(asked)] = mail.take({kWatchGroup, asked, own}, 0, asked).body;
  } catch (const RankReleased&) {
    end.state = RunEnd::State::released;
  } catch (const LetterLate&) {
    end = {
        RunEnd::State::failed, ErrorCode::io,
        fmt::format("{} hears nothing of process {} for {} s: the way between their hosts fails (a firewall, or a network that only one of them has: mpirun's "
                    "btl_tcp_if_include names the one that all share, --display-map tells whose host it is)",
                    ProcessName{own, mail.host(), ::getpid()}.text(), asked, silence.count())};
  }
  std::vector<RunEnd> ends(1, end);
  try {
    ends = mail.finish_run(end);
  } catch (const Error&) {  // who cannot be reached tells nothing of its end either
    if (end.state != RunEnd::State::failed) throw;
  }
  for (const RunEnd& one : ends)
    if (one.state == RunEnd::State::failed) throw Error(one.code, one.message);
  return words;
}

}  // namespace

struct ProcessWatch::State {
  std::chrono::seconds silence{0};  // of a process, which counts as lost then
  std::mutex mutex;
  std::string lost;
  std::vector<std::string> names;  // by process
  std::vector<Socket> sockets;     // by process; of process 0 all others', of another its
  std::atomic<bool> stop = false;
  std::thread thread;

  // Process 0 tells the others.
  void say(std::size_t process, char why) {
    for (const Socket& socket : sockets)
      if (socket && !sockets[0]) tell(socket, {kLost, why, static_cast<std::int32_t>(process)});
    const std::lock_guard lock(mutex);
    if (!lost.empty()) return;
    if (why == kSilent) lost = fmt::format("{} is silent for {} s: it is stopped, or its host or the way to it fails", names[process], silence.count());
    else lost = fmt::format("{} ended without a word", names[process]);
  }
  static void tell(const Socket& socket, const Word& word) { (void)!::send(socket.get(), &word, sizeof(word), MSG_NOSIGNAL | MSG_DONTWAIT); }
  // What a process says; false: it says nothing more. `unread` is the beginning of a word.
  bool hear(std::size_t process, std::string& unread) {
    char bytes[512];
    const ssize_t got = ::recv(sockets[process].get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) {
      say(process, kEnded);
      return false;
    }
    unread.append(bytes, static_cast<std::size_t>(got));
    for (; unread.size() >= sizeof(Word); unread.erase(0, sizeof(Word))) {
      Word word;
      std::memcpy(&word, unread.data(), sizeof(word));
      if (word.what == kGoodBye) return false;
      if (word.what != kLost || word.process < 0 || static_cast<std::size_t>(word.process) >= names.size()) continue;
      say(static_cast<std::size_t>(word.process), word.why);
      return false;
    }
    return true;
  }
  void loop() {
    using Clock = std::chrono::steady_clock;
    std::vector<bool> there(sockets.size());
    std::vector<std::string> unread(sockets.size());
    for (std::size_t p = 0; p < sockets.size(); ++p) there[p] = static_cast<bool>(sockets[p]);
    Clock::time_point turn = Clock::now(), beat = turn - kBeatEvery;
    std::vector<Clock::time_point> heard(sockets.size(), turn);
    while (!stop) {
      std::vector<pollfd> wanted;
      std::vector<std::size_t> whose;
      for (std::size_t p = 0; p < sockets.size(); ++p)
        if (there[p]) wanted.push_back({sockets[p].get(), POLLIN, 0}), whose.push_back(p);
      if (wanted.empty()) return;
      const int spoke = ::poll(wanted.data(), wanted.size(), 200);
      const Clock::time_point now = Clock::now();
      // Who was stopped itself heard nobody, and accuses nobody.
      if (now - turn > silence / 2) heard.assign(heard.size(), now);
      turn = now;
      if (now - beat >= kBeatEvery) {
        for (const std::size_t p : whose) tell(sockets[p], {kBeat});
        beat = now;
      }
      for (std::size_t i = 0; i < wanted.size() && !stop; ++i) {
        const std::size_t p = whose[i];
        if (spoke > 0 && wanted[i].revents != 0) {
          heard[p] = now;
          there[p] = hear(p, unread[p]);
        } else if (now - heard[p] > silence) {
          there[p] = false;
          say(p, kSilent);
        }
      }
    }
  }
  // Process 0: the others' connections.
  void accept_all(const Socket& listener, std::uint64_t secret) {
    for (std::size_t left = sockets.size() - 1; left > 0;) {
      if (!ready(listener.get(), POLLIN, kWithinMilliseconds)) return;
      Socket one(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      Greeting greeting{};
      if (!one || !ready(one.get(), POLLIN, 2000) || ::recv(one.get(), &greeting, sizeof(greeting), MSG_WAITALL) != static_cast<ssize_t>(sizeof(greeting)))
        continue;
      const auto process = static_cast<std::size_t>(greeting.process);
      if (greeting.secret != secret || process == 0 || process >= sockets.size() || sockets[process]) continue;
      const char welcome = 'w';
      if (::send(one.get(), &welcome, 1, MSG_NOSIGNAL) != 1) continue;
      sockets[process] = std::move(one);
      --left;
    }
  }
};

ProcessWatch::ProcessWatch(ProcessMail& mail, std::chrono::seconds silence) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.silence = silence;
  const int processes = mail.processes(), own = mail.process();
  if (processes == 1) return;
  s.sockets.resize(static_cast<std::size_t>(processes));
  Socket listener;
  Greeting greeting{0, own};
  sockaddr_in place{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_ANY)}, .sin_zero = {}};
  ByteWriter out;
  out.text(ProcessName{own, mail.host(), ::getpid()}.text());
  if (own == 0) {
    listener = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t size = sizeof(place);
    if (!listener || ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&place), size) != 0 || ::listen(listener.get(), processes) != 0 ||
        ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&place), &size) != 0)
      place.sin_port = 0;
    greeting.secret = random_bits();
    out.value(greeting.secret);
    out.value(place.sin_port);
    out.values(addresses_here());
  }
  // Everybody's name, and where process 0 listens.
  const std::vector<std::string> words = first_words(mail, out.bytes(), silence);
  std::vector<std::uint32_t> addresses;
  for (int p = 0; p < processes; ++p) {
    ByteReader in(words[static_cast<std::size_t>(p)]);
    s.names.push_back(in.text());
    if (p != 0) continue;
    greeting.secret = in.value<std::uint64_t>();
    place.sin_port = in.value<std::uint16_t>();
    addresses = in.values<std::uint32_t>();
  }
  if (own == 0 && place.sin_port != 0) s.accept_all(listener, greeting.secret);
  for (std::size_t i = 0; own != 0 && place.sin_port != 0 && i < addresses.size() && !s.sockets[0]; ++i)
    s.sockets[0] = connected(addresses[i], place.sin_port, greeting);
  for (int p = 0; p < processes; ++p)
    if (p != own && (p == 0 || own == 0) && !s.sockets[static_cast<std::size_t>(p)])
      log_warning("a process cannot be watched: that it dies or is stopped may go unnoticed", {{"process", s.names[static_cast<std::size_t>(p)]}});
  s.thread = std::thread([&s] { s.loop(); });
  mail.watch([&s] {
    const std::lock_guard lock(s.mutex);
    return s.lost;
  });
}

ProcessWatch::~ProcessWatch() {
  State& s = *state_;
  s.stop = true;
  for (const Socket& socket : s.sockets) {
    if (!socket) continue;
    State::tell(socket, {kGoodBye});
    ::shutdown(socket.get(), SHUT_RDWR);
  }
  if (s.thread.joinable()) s.thread.join();
}

}  // namespace lockstep
