// Links between ranks are measured over threads and processes alike; one that is slow, changes bytes or gives nothing is named.
#include "parallel/link_speed.h"

#include <gtest/gtest.h>

#include <mutex>

#include "parallel/memory_wire_test_tools.h"
#include "parallel/thread_ranks.h"

namespace lockstep {
namespace {

using Pair = std::pair<int, int>;

const LinkSettings kShort{.seconds = 0.002, .most_bytes = 256 << 10};

// The lowest link that has these ends.
const LinkSpeed& link_of(const LinkSpeeds& speeds, int first, int second) {
  for (const LinkSpeed& link : speeds.links)
    if (link.first == first && link.second == second) return link;
  throw std::runtime_error(fmt::format("no link {} {}", first, second));
}

// What each process measured, or what it threw, by process.
struct Measured {
  std::vector<LinkSpeeds> speeds;
  std::vector<std::string> errors;
};
Measured over_processes(const std::shared_ptr<MemoryNet>& net, const RankLayout& layout, const LinkSettings& settings) {
  Measured measured{std::vector<LinkSpeeds>(static_cast<std::size_t>(net->processes)), std::vector<std::string>(static_cast<std::size_t>(net->processes))};
  as_processes(net, [&](ProcessMail& mail) {
    const auto own = static_cast<std::size_t>(mail.process());
    try {
      ProcessRanks ranks(layout, mail);
      measured.speeds[own] = measure_links(ranks, settings);
    } catch (const std::exception& e) {
      measured.errors[own] = e.what();
    }
  });
  return measured;
}

TEST(LinkSpeeds, EveryPairOfFewRanksAndARingOfMany) {
  EXPECT_EQ(measured_links(2), (std::vector<Pair>{{0, 1}}));
  EXPECT_EQ(measured_links(3), (std::vector<Pair>{{0, 1}, {0, 2}, {1, 2}}));
  EXPECT_EQ(measured_links(16).size(), 120u);
  const std::vector<Pair> many = measured_links(17);
  ASSERT_EQ(many.size(), 17u);
  EXPECT_EQ(many[0], Pair(0, 1));
  EXPECT_EQ(many[1], Pair(0, 16));
  EXPECT_EQ(many.back(), Pair(15, 16));
}

TEST(LinkSpeeds, ThreadsAndProcessesTellFiguresOfEachLink) {
  const auto check = [](const LinkSpeeds& speeds, int ranks) {
    ASSERT_EQ(speeds.links.size(), measured_links(ranks).size());
    for (const LinkSpeed& link : speeds.links) {
      EXPECT_GT(link.latency, 0);
      EXPECT_LT(link.latency, 1);
      EXPECT_GT(link.there, 1e5);
      EXPECT_GT(link.back, 1e5);
      EXPECT_GE(link.there_bytes, 64 << 10);
      EXPECT_LE(link.back_bytes, 256 << 10);
    }
    EXPECT_GT(speeds.around, 1e5);
  };
  for (const RankLayout& layout : {RankLayout{.dp = 2}, RankLayout{.tp = 3}, RankLayout{.tp = 2, .pp = 2}}) {
    SCOPED_TRACE(layout.text());
    std::vector<std::size_t> done;
    LinkSettings settings = kShort;
    settings.on_link = [&](const LinkSpeed&, std::size_t number, std::size_t all) {
      done.push_back(number);
      EXPECT_EQ(all, measured_links(layout.size()).size());
    };
    ThreadRanks threads(layout);
    check(measure_links(threads, settings), layout.size());
    EXPECT_EQ(done.size(), measured_links(layout.size()).size());
    const Measured measured = over_processes(std::make_shared<MemoryNet>(2), layout, kShort);
    EXPECT_EQ(measured.errors, std::vector<std::string>(2));
    for (const LinkSpeeds& speeds : measured.speeds) check(speeds, layout.size());
    EXPECT_EQ(measured.speeds[0].links.back().latency, measured.speeds[1].links.back().latency);
    EXPECT_EQ(measured.speeds[0].around, measured.speeds[1].around);
  }
}

TEST(LinkSpeeds, ASlowLinkHasOtherFigures) {
  const auto net = std::make_shared<MemoryNet>(3);
  std::map<Pair, std::chrono::steady_clock::time_point> since;
  net->late = [&](int from, int to) {  // each message of that pair arrives 30 ms after it was asked for, longer than a busy machine makes others wait
    if (std::min(from, to) != 0 || std::max(from, to) != 2) return false;
    const auto now = std::chrono::steady_clock::now();
    const auto asked = since.try_emplace({from, to}, now).first;
    if (now - asked->second < std::chrono::milliseconds(30)) return true;
    since.erase(asked);
    return false;
  };
  const Measured measured = over_processes(net, {.dp = 3}, kShort);
  ASSERT_EQ(measured.errors, std::vector<std::string>(3));
  const LinkSpeeds& speeds = measured.speeds[1];
  EXPECT_GT(link_of(speeds, 0, 2).latency, 30e-3);
  EXPECT_LT(link_of(speeds, 0, 1).latency, 30e-3);
  EXPECT_LT(link_of(speeds, 1, 2).latency, 30e-3);
  EXPECT_LT(link_of(speeds, 0, 2).there, link_of(speeds, 0, 1).there);
}

TEST(LinkSpeeds, ChangedBytesAreNamed) {
  const auto net = std::make_shared<MemoryNet>(3);
  net->changes = [](int from, int to, std::string& bytes) {
    if (from == 2 && to == 1 && bytes.size() > 60'000) bytes[4711] = static_cast<char>(bytes[4711] ^ 4);
  };
  LinkSettings settings = kShort;
  settings.name = [](int rank) { return fmt::format("rank {} (host {})", rank, "abc"[rank]); };
  const Measured measured = over_processes(net, {.dp = 3}, settings);
  for (const std::string& error : measured.errors) {
    EXPECT_NE(error.find("rank 2 (host c) sends 65536 bytes, and at rank 1 (host b) they arrive changed: byte 4711 was"), std::string::npos) << error;
  }
}

TEST(LinkSpeeds, ALinkThatGivesNothingIsNamedAndNobodyHangs) {
  const auto net = std::make_shared<MemoryNet>(4);
  net->late = [](int from, int to) { return from == 1 && to == 2; };
  LinkSettings settings = kShort;
  settings.patience = std::chrono::milliseconds(300);
  const auto began = std::chrono::steady_clock::now();
  const Measured measured = over_processes(net, {.dp = 4}, settings);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
  for (const int told : {0, 1, 3}) {  // 2 alone may hear of the end of 1 or not
    const std::string& error = measured.errors[static_cast<std::size_t>(told)];
    EXPECT_NE(error.find("rank 1 and rank 2 exchange 65536 bytes, and nothing comes for 0.3 s"), std::string::npos) << told << ": " << error;
  }
  EXPECT_NE(measured.errors[2], "");
}

}  // namespace
}  // namespace lockstep
