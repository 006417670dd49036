#include "api/openai/forced_tool_parser.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

struct Call {
  std::string name, arguments;
  bool operator==(const Call&) const = default;
};

// In pieces of `size` bytes; each piece a delta of its own, as in a stream.
std::vector<Call> parse(const std::string& name, const std::string& text, std::size_t size) {
  ForcedToolParser parser(name);
  ChoiceDelta whole;
  for (std::size_t at = 0; at < text.size(); at += size) {
    ChoiceDelta delta;
    parser.push(text.substr(at, size), delta);
    EXPECT_TRUE(delta.content.empty());
    whole.append(std::move(delta));
  }
  ChoiceDelta end;
  parser.flush(end);
  whole.append(std::move(end));
  std::vector<Call> calls;
  for (const ToolCallDelta& call : whole.tool_calls) {
    EXPECT_EQ(call.index, calls.size());
    calls.push_back({call.name, call.arguments});
  }
  return calls;
}

TEST(ForcedToolParser, AnySplitGivesTheSame) {
  const std::string list =
      R"([{"name": "add", "arguments": {"a": [1, {"b": "}\"]{"}], "c": {}}}, {"name":"none","arguments":{}} , {"name": "x", "arguments": {"k": "\\"}}])";
  const std::vector<Call> wanted = {{"add", R"({"a": [1, {"b": "}\"]{"}], "c": {}})"}, {"none", "{}"}, {"x", R"({"k": "\\"})"}};
  const std::string one = R"( {"a": {"b": "]}"}, "c": [{}]} )";
  for (std::size_t size = 1; size <= list.size(); ++size) {
    EXPECT_EQ(parse("", list, size), wanted) << size;
    EXPECT_EQ(parse("f", one, size), (std::vector<Call>{{"f", R"({"a": {"b": "]}"}, "c": [{}]})"}})) << size;
  }
}

TEST(ForcedToolParser, AnAnswerThatEndsEarlyGivesWhatCame) {
  EXPECT_EQ(parse("", R"([{"name": "add", "arguments": {"a": [1, )", 3), (std::vector<Call>{{"add", R"({"a": [1, )"}}));
  EXPECT_TRUE(parse("", R"([{"name": "add", "argu)", 3).empty());
  EXPECT_TRUE(parse("f", "", 1).empty());
}

}  // namespace
}  // namespace lockstep
