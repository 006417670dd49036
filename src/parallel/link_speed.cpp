#include "parallel/link_speed.h"

#include <algorithm>
#include <cstring>

#include "base/byte_record.h"
#include "base/error.h"
#include "base/median.h"
#include "base/philox.h"
#include "base/seconds.h"
#include "parallel/mail.h"
#include "parallel/transfer.h"

namespace lockstep {

namespace {
constexpr std::int64_t kSmall = 8, kLeastLarge = 64 << 10;
constexpr int kLeastTurns = 3, kMostTurns = 2000;
constexpr int kInARow = 4;  // large messages, before an answer
// Whoever stands in the measurement of an earlier link gives up first, so that the link that fails is the one that is named.
constexpr std::chrono::milliseconds kPatienceMoreALink{50};

using Bytes = std::vector<std::uint8_t>;

// What a rank sends; all values of a byte are in it.
Bytes bytes_of_rank(int rank, std::int64_t count) {
  Bytes bytes(static_cast<std::size_t>((count + 3) / 4 * 4));
  RandomSequence draws(1, RandomStream::fuzz, static_cast<std::uint64_t>(rank));
  for (std::size_t at = 0; at < bytes.size(); at += 4) {
    const std::uint32_t word = draws.next();
    std::memcpy(bytes.data() + at, &word, sizeof(word));
  }
  return bytes;
}

View view_of(Bytes& bytes, std::int64_t count) {
  return {.address = reinterpret_cast<std::uint64_t>(bytes.data()), .dtype = DType::u8, .element_bytes = 1, .rows = 1, .cols = count, .stride = count};
}

// One rank's part of all measurements. Ranks that are no end of a link make its exchanges too, with nothing to send.
class LinkMeter {
 public:
  LinkMeter(const RankPlace& place, const LinkSettings& settings)
      : world_(*place.world), rank_(place.rank), settings_(settings), out_(bytes_of_rank(rank_, settings.most_bytes)), in_(out_.size()) {}

  LinkSpeeds run(bool tells) {
    LinkSpeeds speeds;
    const std::vector<std::pair<int, int>> links = measured_links(world_.size());
    reach(links);
    std::int64_t bytes = settings_.most_bytes;
    for (const auto& [first, second] : links) {
      speeds.links.push_back(measured(first, second));
      bytes = std::min({bytes, speeds.links.back().there_bytes, speeds.links.back().back_bytes});
      if (tells && settings_.on_link) settings_.on_link(speeds.links.back(), speeds.links.size(), links.size());
    }
    speeds.around = around(bytes);
    return speeds;
  }

 private:
  std::string name(int rank) const { return settings_.name ? settings_.name(rank) : fmt::format("rank {}", rank); }

  // `from` sends so many bytes to `to`.
  void pass(int from, int to, std::int64_t bytes) {
    try {
      send_between(world_, stream_, from, to, rank_ == from ? view_of(out_, bytes) : View{}, rank_ == to ? view_of(in_, bytes) : View{});
    } catch (const LetterLate&) {
      fail(ErrorCode::io,
           "{} and {} exchange {} bytes, and nothing comes for {:.3g} s: the way between their hosts fails; look for a firewall, and for packets larger than "
           "what the way carries (its MTU)",
           name(std::min(from, to)), name(std::max(from, to)), bytes, static_cast<double>(settings_.patience.count()) / 1e3);
    }
  }
  // pass(), and what came is what was sent.
  void pass_compared(int from, int to, std::int64_t bytes) {
    if (rank_ == to) std::fill_n(in_.begin(), bytes, std::uint8_t{0});
    pass(from, to, bytes);
    if (rank_ != to) return;
    const Bytes sent = bytes_of_rank(from, bytes);
    const auto other = std::mismatch(sent.begin(), sent.begin() + bytes, in_.begin());
    if (other.first == sent.begin() + bytes) return;
    fail(ErrorCode::io, "{} sends {} bytes, and at {} they arrive changed: byte {} was {} and is {}; no bit of a run over this link can be relied on",
         name(from), bytes, name(to), other.first - sent.begin(), *other.first, *other.second);
  }
  // The first large messages over each link, so that one that fails is named before figures are told to all over all links.
  void reach(const std::vector<std::pair<int, int>>& links) {
    const auto bytes = std::min(kLeastLarge, settings_.most_bytes);
    for (std::size_t at = 0; at < links.size(); ++at) {
      const MailPatience patience(settings_.patience.count() > 0 ? settings_.patience + kPatienceMoreALink * static_cast<int>(at) : settings_.patience);
      pass_compared(links[at].first, links[at].second, bytes);
      pass_compared(links[at].second, links[at].first, bytes);
    }
  }

  // A rank's number, as all ranks get it.
  double told(int teller, double number) {
    ByteWriter out;
    out.value(number);
    const std::vector<std::string> all = world_.gather_host(out.bytes());
    return ByteReader(all[static_cast<std::size_t>(teller)]).value<double>();
  }
  // The median of the seconds that a turn takes `teller`, over a number of turns that fits into the settings' seconds.
  double seconds_of(int teller, const std::function<void()>& turn) {
    const auto once = [&] {
      const auto began = std::chrono::steady_clock::now();
      turn();
      return seconds_since(began);
    };
    turn();
    world_.barrier();
    const double first = told(teller, once());
    const int turns = static_cast<int>(std::clamp(settings_.seconds / std::max(first, 1e-7), double{kLeastTurns}, double{kMostTurns}));
    std::vector<double> seconds;
    for (int i = 0; i < turns; ++i) seconds.push_back(once());
    return told(teller, median(std::move(seconds)));
  }

  struct Rate {
    double bytes_per_second = 0;
    std::int64_t bytes = 0;
  };
  Rate rate(int from, int to, double latency) {
    // How large messages may be, from what a small one of them takes.
    const std::int64_t least = std::min(kLeastLarge, settings_.most_bytes);
    world_.barrier();
    const auto began = std::chrono::steady_clock::now();
    pass(from, to, least);
    pass(to, from, kSmall);
    const double once = told(from, seconds_since(began));
    std::int64_t bytes = least;
    while (bytes * 2 <= settings_.most_bytes && once * static_cast<double>(bytes * 2 / least) * kInARow * kLeastTurns < settings_.seconds) bytes *= 2;
    const int in_a_row = bytes > least ? kInARow : 1;
    const double seconds = seconds_of(from, [&] {
      for (int i = 0; i < in_a_row; ++i) pass(from, to, bytes);
      pass(to, from, kSmall);
    });
    pass_compared(from, to, bytes);
    return {static_cast<double>(bytes * in_a_row) / std::max(seconds - latency, 1e-9), bytes};
  }

  LinkSpeed measured(int first, int second) {
    const MailPatience patience(2 * settings_.patience);
    LinkSpeed link{.first = first, .second = second};
    link.latency = 0.5 * seconds_of(first, [&] {
                     pass(first, second, kSmall);
                     pass(second, first, kSmall);
                   });
    const Rate there = rate(first, second, link.latency), back = rate(second, first, link.latency);
    link.there = there.bytes_per_second, link.back = back.bytes_per_second;
    link.there_bytes = there.bytes, link.back_bytes = back.bytes;
    return link;
  }

  double around(std::int64_t bytes) {
    const MailPatience patience(2 * settings_.patience);
    const auto size = static_cast<std::size_t>(world_.size());
    std::vector<View> to(size), from(size);
    to[(static_cast<std::size_t>(rank_) + 1) % size] = view_of(out_, bytes);
    from[(static_cast<std::size_t>(rank_) + size - 1) % size] = view_of(in_, bytes);
    double slowest = 0;
    // Each rank's own time, and all know each.
    std::vector<double> seconds;
    for (int i = 0; i < 2 * kLeastTurns + 1; ++i) {
      world_.barrier();
      const auto began = std::chrono::steady_clock::now();
      world_.exchange(stream_, to, from);
      seconds.push_back(seconds_since(began));
    }
    const double own = median(std::move(seconds));
    ByteWriter out;
    out.value(own);
    for (const std::string& record : world_.gather_host(out.bytes())) slowest = std::max(slowest, ByteReader(record).value<double>());
    return static_cast<double>(bytes) / std::max(slowest, 1e-9);
  }

  Communicator& world_;
  const int rank_;
  const LinkSettings& settings_;
  Stream stream_{BackendKind::cpu};
  Bytes out_, in_;
};
}  // namespace

std::vector<std::pair<int, int>> measured_links(int ranks) {
  std::vector<std::pair<int, int>> links;
  for (int a = 0; a < ranks; ++a)
    for (int b = a + 1; b < ranks; ++b)
      if (ranks <= kMostPaired || b == a + 1 || (a == 0 && b == ranks - 1)) links.emplace_back(a, b);
  return links;
}

LinkSpeeds measure_links(Ranks& ranks, const LinkSettings& settings) {
  if (ranks.size() < 2) fail(ErrorCode::invalid_argument, "ranks is {}, which is one and has no link; allowed are 2 and more", ranks.layout().text());
  LinkSpeeds all;
  ranks.run([&](int local) {
    const RankPlace place = ranks.place(local);
    LinkSpeeds own = LinkMeter(place, settings).run(place.rank == 0);
    if (local == 0) all = std::move(own);
  });
  return all;
}

}  // namespace lockstep
