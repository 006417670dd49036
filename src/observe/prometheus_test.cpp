#include "observe/prometheus.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

namespace lockstep {
namespace {

// Reads the text format as its specification has it; anything else fails. Values by "name{labels}".
std::map<std::string, double> parsed(const std::string& text) {
  std::map<std::string, double> values;
  std::set<std::string> families;
  std::string family, type;
  std::istringstream lines(text);
  const std::regex sample(R"(^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{([a-zA-Z_][a-zA-Z0-9_]*="([^"\\\n]|\\["\\n])*",?)*\})? (NaN|[+-]Inf|-?[0-9.]+(e[+-]?[0-9]+)?)$)");
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << family << " twice";
    } else if (line.starts_with("# TYPE ")) {
      EXPECT_EQ(line.substr(7, family.size() + 1), family + " ");
      type = line.substr(8 + family.size());
      EXPECT_TRUE(type == "counter" || type == "gauge" || type == "histogram") << line;
    } else if (std::regex_match(line, match, sample)) {
      std::string name = match[1];
      if (type == "histogram")
        for (const char* suffix : {"_bucket", "_sum", "_count"})
          if (name == family + suffix) name = family;
      EXPECT_EQ(name, family);
      EXPECT_TRUE(values.emplace(match[1].str() + match[2].str(), match[5] == "+Inf" ? HUGE_VAL : std::stod(match[5])).second) << line;
    } else {
      ADD_FAILURE() << "not the text format: " << line;
    }
  }
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  return values;
}

TEST(Prometheus, Samples) {
  PrometheusText text;
  text.family("a_total", "counter", "With a \\ and a\nline.");
  text.sample({{"route", "/v1/{x}"}, {"odd", "q\"\\\n"}}, 3);
  text.sample({}, 0.25);
  text.family("b", "gauge", "Other.");
  text.sample({}, 12345678901234.0);
  text.sample({{"i", "1"}}, HUGE_VAL);
  const auto values = parsed(text.take());
  EXPECT_EQ(values.at(R"(a_total{route="/v1/{x}",odd="q\"\\\n"})"), 3);
  EXPECT_EQ(values.at("a_total"), 0.25);
  EXPECT_EQ(values.at("b"), 12345678901234.0);
}

TEST(Prometheus, Histograms) {
  Histogram histogram({0.1, 1, 10});
  for (const double value : {0.05, 0.1, 0.5, 10.0, 11.0, 1e9}) histogram.observe(value);
  PrometheusText text;
  text.family("t_seconds", "histogram", "Times.");
  text.histogram({{"route", "r"}}, histogram);
  const auto values = parsed(text.take());
  EXPECT_EQ(values.at(R"(t_seconds_bucket{route="r",le="0.1"})"), 2);  // a bound belongs to its bucket
  EXPECT_EQ(values.at(R"(t_seconds_bucket{route="r",le="1"})"), 3);
  EXPECT_EQ(values.at(R"(t_seconds_bucket{route="r",le="10"})"), 4);
  EXPECT_EQ(values.at(R"(t_seconds_bucket{route="r",le="+Inf"})"), 6);
  EXPECT_EQ(values.at(R"(t_seconds_count{route="r"})"), 6);
  EXPECT_NEAR(values.at(R"(t_seconds_sum{route="r"})"), 1e9 + 21.65, 1);
  EXPECT_EQ(Histogram::second_bounds().front(), 0.0005);
}

TEST(Prometheus, ManyThreadsAddWithoutLoss) {
  Histogram histogram(Histogram::second_bounds());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) histogram.observe(0.25);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.count(), 40000u);
  EXPECT_EQ(histogram.sum(), 10000);
}

TEST(Prometheus, TheProcessItself) {
  PrometheusText text;
  append_process_metrics(text);
  const auto values = parsed(text.take());
  EXPECT_GT(values.at("process_resident_memory_bytes"), 1e6);
  EXPECT_GE(values.at("process_open_fds"), 3);
  EXPECT_LT(values.at("process_open_fds"), values.at("process_max_fds"));
  EXPECT_GT(values.at("process_cpu_seconds_total"), 0);
}

}  // namespace
}  // namespace lockstep
