#include "cli/options.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"

namespace lockstep {
namespace {

struct Settings {
  std::string model, mode = "fast";
  std::int64_t steps = 10;
  std::uint64_t seed = 7;
  std::optional<std::uint64_t> other_seed;
  std::optional<std::vector<std::int32_t>> tokens;
  double rate = 0.5;
  bool shuffle = true, json = false;
  std::vector<std::string> stop;
  std::string place;
};

std::unique_ptr<OptionTable> table_of(Settings& s) {
  auto table = std::make_unique<OptionTable>("train", "Trains.", std::vector<std::string>{"lockstep train --model DIR"});
  table->positional("PLACE", &s.place, false, "Where");
  table->text("model", &s.model, "DIR", "Model folder");
  table->choice("mode", &s.mode, {"fast", "careful"}, "How");
  table->integer("max-steps", &s.steps, 1, 1000, "N", "Steps");
  table->seed("seed", &s.seed, "Seed");
  table->seed("other-seed", &s.other_seed, "Another");
  table->integers("tokens", &s.tokens, "IDS", "Ids");
  table->number("optimizer.learning-rate", &s.rate, 0, 1, "X", "Rate");
  table->flag("shuffle", &s.shuffle, "Shuffle");
  table->flag("json", &s.json, "JSON").command_line_only();
  table->texts("stop", &s.stop, "TEXT", "Stops");
  table->accept_config();
  return table;
}

// What --help prints.
std::string help_of(OptionTable& table) {
  testing::internal::CaptureStdout();
  EXPECT_FALSE(table.parse({"--help"}));
  return testing::internal::GetCapturedStdout();
}

std::string refusal(const std::vector<std::string>& arguments) {
  Settings s;
  try {
    table_of(s)->parse(arguments);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Options, EveryKindInBothSpellings) {
  Settings s;
  ASSERT_TRUE(table_of(s)->parse({"here", "--model", "m", "--mode=careful", "--max-steps", "20", "--seed=18446744073709551615", "--tokens", "1,5,7",
                                  "--optimizer.learning-rate", "1e-3", "--no-shuffle", "--json", "--stop", "a", "--stop=b=c"}));
  EXPECT_EQ(s.place, "here");
  EXPECT_EQ(s.model, "m");
  EXPECT_EQ(s.mode, "careful");
  EXPECT_EQ(s.steps, 20);
  EXPECT_EQ(s.seed, ~std::uint64_t{0});
  EXPECT_EQ(s.tokens, (std::vector<std::int32_t>{1, 5, 7}));
  EXPECT_EQ(s.rate, 1e-3);
  EXPECT_FALSE(s.shuffle);
  EXPECT_TRUE(s.json);
  EXPECT_EQ(s.stop, (std::vector<std::string>{"a", "b=c"}));
  EXPECT_FALSE(s.other_seed);
}

TEST(Options, AnOptionMayStandAlone) {
  const auto ranks_of = [](const std::vector<std::string>& arguments) {
    std::string ranks, place;
    bool json = false;
    OptionTable table("doctor", "Checks.", {"lockstep doctor"});
    table.text("ranks", &ranks, "LAYOUT", "Ranks").or_alone("auto");
    table.text("model", &place, "DIR", "Model");
    table.flag("json", &json, "JSON");
    EXPECT_TRUE(table.parse(arguments));
    return fmt::format("{} {}", ranks, json);
  };
  EXPECT_EQ(ranks_of({}), " false");
  EXPECT_EQ(ranks_of({"--ranks"}), "auto false");
  EXPECT_EQ(ranks_of({"--ranks", "--json"}), "auto true");
  EXPECT_EQ(ranks_of({"--ranks", "tp=2", "--json"}), "tp=2 true");
  EXPECT_EQ(ranks_of({"--ranks=tp=2"}), "tp=2 false");
  EXPECT_THROW(ranks_of({"--model"}), UsageError);  // others need a value
}

TEST(Options, DefaultsStay) {
  Settings s;
  auto table = table_of(s);
  ASSERT_TRUE(table->parse({}));
  EXPECT_EQ(s.steps, 10);
  EXPECT_TRUE(s.shuffle);
  EXPECT_FALSE(table->given("max-steps"));
}

TEST(Options, Refusals) {
  EXPECT_EQ(refusal({"--max-step", "3"}), "unknown option '--max-step'; did you mean '--max-steps'?; `lockstep train --help` lists them");
  EXPECT_EQ(refusal({"--max-steps", "0"}), "--max-steps is '0', allowed is an integer from 1 to 1000");
  EXPECT_EQ(refusal({"--max-steps", "12x"}), "--max-steps is '12x', allowed is an integer from 1 to 1000");
  EXPECT_EQ(refusal({"--max-steps", ""}), "--max-steps is '', allowed is an integer from 1 to 1000");
  EXPECT_EQ(refusal({"--max-steps"}), "--max-steps needs a value");
  EXPECT_EQ(refusal({"--optimizer.learning-rate", "nan"}), "--optimizer.learning-rate is 'nan', allowed is a number from 0 to 1");
  EXPECT_EQ(refusal({"--mode", "fats"}), "--mode is 'fats', allowed are fast, careful; did you mean 'fast'?");
  EXPECT_EQ(refusal({"--seed", "-1"}), "--seed is '-1', allowed is an integer from 0 to 18446744073709551615");
  EXPECT_NE(refusal({"--tokens", "1,,2"}).find("--tokens is '1,,2', allowed are integers"), std::string::npos);
  EXPECT_NE(refusal({"--tokens", "1,-2"}).find("allowed are integers"), std::string::npos);
  EXPECT_NE(refusal({"here", "there"}).find("unexpected argument 'there'"), std::string::npos);
  EXPECT_NE(refusal({"-x"}).find("unknown option '-x'"), std::string::npos);
  EXPECT_NE(refusal({"-model", "x"}).find("unknown option '-model'; did you mean '--model'?"), std::string::npos);
  EXPECT_NE(refusal({"--no-model"}).find("unknown option '--no-model'"), std::string::npos);
  EXPECT_EQ(refusal({"--shuffle=maybe"}), "--shuffle is 'maybe', allowed are true and false");
  EXPECT_EQ(refusal({"--set", "max_steps"}), "--set is 'max_steps', allowed is KEY=VALUE");
  EXPECT_NE(refusal({"--set", "max_stepz=4"}).find("unknown key 'max_stepz'; did you mean 'max_steps'?"), std::string::npos);
  EXPECT_NE(refusal({"--set", "json=true"}).find("unknown key 'json'"), std::string::npos);
}

TEST(Options, ARequiredOptionIsMissed) {
  std::string value;
  OptionTable table("info", "Informs.", {"lockstep info DIR"});
  table.text("model", &value, "DIR", "Model").required();
  EXPECT_THROW(table.parse({}), UsageError);
  EXPECT_TRUE(table.parse({"--model", "x"}));
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) : path_(std::filesystem::temp_directory_path() / fmt::format("options_{}.toml", getpid())) {
    write_file_atomic(path_, text);
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(Options, FlagsWinOverSetAndSetOverTheFile) {
  const ConfigFile file("max_steps = 20\nmode = \"careful\"\nstop = [\"x\", \"y\"]\nshuffle = false\n[optimizer]\nlearning_rate = 1\n");
  Settings s;
  ASSERT_TRUE(table_of(s)->parse({"--max-steps", "40", "--config", file.path(), "--set", "mode=fast", "--set", "other-seed=3"}));
  EXPECT_EQ(s.steps, 40);
  EXPECT_EQ(s.mode, "fast");
  EXPECT_EQ(s.rate, 1.0);
  EXPECT_EQ(s.other_seed, 3u);
  EXPECT_FALSE(s.shuffle);
  EXPECT_EQ(s.stop, (std::vector<std::string>{"x", "y"}));
}

TEST(Options, ATablesNameMayBeTheBeginningOfAName) {
  const ConfigFile file("[max]\nsteps = 30\n");
  Settings s;
  ASSERT_TRUE(table_of(s)->parse({"--config", file.path()}));
  EXPECT_EQ(s.steps, 30);
  ASSERT_TRUE(table_of(s)->parse({"--set", "max.steps=40"}));
  EXPECT_EQ(s.steps, 40);
  EXPECT_NE(refusal({"--set", "min.steps=4"}).find("unknown key 'min.steps'"), std::string::npos);
}

TEST(Options, FaultsOfAFileNameIt) {
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"max_steps = \n", ".toml:1:"},
           {"max_stepz = 3\n", "unknown key 'max_stepz'; did you mean 'max_steps'?"},
           {"[optimiser]\nlearning_rate = 0.1\n", "unknown key 'optimiser.learning_rate'; did you mean 'optimizer.learning_rate'?"},
           {"max_steps = 4000\n", "max_steps is '4000', allowed is an integer from 1 to 1000"},
           {"max_steps = [1, 2]\n", "max_steps is a list"},
           {"model = 2020-01-01\n", "model is a date"},
           {"json = true\n", "unknown key 'json'"}}) {
    const ConfigFile file(text);
    const std::string got = refusal({"--config", file.path()});
    EXPECT_NE(got.find(part), std::string::npos) << got;
    EXPECT_NE(got.find(".toml"), std::string::npos) << got;
  }
}

TEST(Options, WhatIsResolvedReadsBack) {
  Settings a;
  auto table = table_of(a);
  ASSERT_TRUE(table->parse({"--model", "a \"b\"\n\\c", "--max-steps", "12", "--seed", "18446744073709551615", "--tokens", "4,5", "--optimizer.learning-rate",
                            "0.1", "--no-shuffle", "--stop", "\t", "--json"}));
  const std::string toml = table->rows().resolved_toml();
  Settings b;
  auto again = table_of(b);
  again->rows().read_toml(toml, "resolved");
  EXPECT_EQ(again->rows().resolved_toml(), toml);
  EXPECT_EQ(b.model, a.model);
  EXPECT_EQ(b.seed, a.seed);
  EXPECT_EQ(b.tokens, a.tokens);
  EXPECT_EQ(b.rate, a.rate);
  EXPECT_EQ(b.shuffle, false);
  EXPECT_EQ(b.stop, a.stop);
  EXPECT_FALSE(b.json);
}

// Every command has it, whatever else its table holds, and a configuration does not.
TEST(Options, TheLogLevelIsEveryCommands) {
  const LogLevel before = log_level();
  OptionTable bare("info", "Shows.", {"lockstep info"});
  EXPECT_TRUE(bare.parse({"--log-level", "error"}));
  EXPECT_EQ(log_level(), LogLevel::error);
  Settings s;
  const auto table = table_of(s);
  EXPECT_TRUE(table->parse({"--model", "m", "--log-level=debug"}));
  EXPECT_EQ(log_level(), LogLevel::debug);
  EXPECT_EQ(table->rows().resolved_toml().find("log"), std::string::npos);
  EXPECT_NE(help_of(*table).find("--log-level NAME"), std::string::npos);
  Settings plain;
  EXPECT_TRUE(table_of(plain)->parse({"--model", "m"}));
  EXPECT_EQ(log_level(), LogLevel::info);
  EXPECT_EQ(refusal({"--log-level", "warnin"}), "--log-level is 'warnin', allowed are debug, info, warning, error, off; did you mean 'warning'?");
  EXPECT_NE(refusal({"--set", "log_level=debug"}).find("unknown key"), std::string::npos);
  set_log_level(before);
}

TEST(Options, HelpShowsTheExampleFirstAndDefaults) {
  Settings s;
  const std::string help = help_of(*table_of(s));
  EXPECT_TRUE(help.starts_with("  lockstep train --model DIR\n"));
  EXPECT_NE(help.find("--max-steps N"), std::string::npos);
  EXPECT_NE(help.find("default 10; 1 to 1000"), std::string::npos);
  for (std::size_t at = 0; at < help.size();) {
    const std::size_t end = help.find('\n', at);
    EXPECT_LE(end - at, 110u) << help.substr(at, end - at);
    at = end + 1;
  }
}

}  // namespace
}  // namespace lockstep
