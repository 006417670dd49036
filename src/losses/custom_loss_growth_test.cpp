// The work of a traced loss grows with its graph, whatever the graph is full of (base/growth_test_tools.h): from the body's bytes through the check of
// its nodes to the loss of a datum and its derivative. What costs no memory costs no time.
#include <gtest/gtest.h>

#include "base/bounded_json.h"
#include "base/growth_test_tools.h"
#include "losses/graph_test_tools.h"

namespace lockstep {
namespace {
#ifndef __SANITIZE_THREAD__  // work that is counted on one thread: nothing for ThreadSanitizer to see, and minutes under it

constexpr const char* kLogprobs = R"({"ref":"logprobs"})";

std::string call_text(const std::string& name, const std::string& target, const std::string& arguments, const std::string& named = "") {
  return R"(,{"op":"call_function","name":")" + name + R"(","target":")" + target + R"(","args":[)" + arguments + R"(],"kwargs":{)" + named + "}}";
}
std::string ref_text(const std::string& name) { return R"({"ref":")" + name + "\"}"; }
// The nodes between the inputs and the end: their last is summed to the loss.
std::string graph_text(const std::string& nodes, const std::string& last) {
  std::string text = R"({"format":1,"nodes":[)";
  for (const char* input : {"logprobs", "a", "mask"})
    text += std::string(text.back() == '[' ? "" : ",") + R"({"op":"placeholder","name":")" + input + R"(","target":")" + input + "\"}";
  return text + nodes + call_text("end", "torch.sum", ref_text(last)) + R"(,{"op":"output","name":"output","target":"output","args":[{"tuple":[)" +
         ref_text("end") + R"(,{"dict":{}}]}]}]})";
}
// "one,one,...", "%d" in it being its number.
std::string list_text(std::size_t count, const std::string& one) {
  std::string text;
  const std::size_t number = one.find("%d");
  for (std::size_t i = 0; i < count; ++i)
    text += (i ? "," : "") + (number == std::string::npos ? one : one.substr(0, number) + std::to_string(i) + one.substr(number + 2));
  return text;
}
bool reads_and_runs(const std::string& graph) { return run_graph(graph_test_inputs(), read_json(graph)); }

struct GraphForm {
  const char* name;
  std::size_t size;  // and eight times that
  bool runs;
  std::function<std::string(std::size_t)> make;
};

TEST(CustomLossGrowth, WorkGrowsWithTheGraph) {
  const auto chain = [](std::size_t count, const std::string& prefix, const std::string& target) {
    std::string nodes, last = "logprobs";
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name = prefix + std::to_string(i);
      nodes += call_text(name, target, ref_text(last));
      last = name;
    }
    return graph_text(nodes, last);
  };
  const GraphForm forms[] = {
      {"a chain of nodes", 100, true, [&](std::size_t n) { return chain(n, "n", "torch.neg"); }},
      {"nodes with long names that begin alike", 100, true, [&](std::size_t n) { return chain(n, std::string(100, 'n'), "torch.neg"); }},
      {"nodes that all refer to the first", 100, true,
       [](std::size_t n) {
         std::string nodes;
         for (std::size_t i = 0; i < n; ++i) nodes += call_text("n" + std::to_string(i), "torch.add", std::string(kLogprobs) + "," + kLogprobs);
         return graph_text(nodes, "n" + std::to_string(n - 1));
       }},
      {"edges of one node", 300, true, [](std::size_t n) { return graph_text(call_text("n", "torch.stack", "[" + list_text(n, kLogprobs) + "]"), "n"); }},
      {"constants of one node", 1000, false, [](std::size_t n) { return graph_text(call_text("n", "torch.neg", "[" + list_text(n, "%d") + "]"), "n"); }},
      {"texts of one node", 1000, false, [](std::size_t n) { return graph_text(call_text("n", "torch.neg", "[" + list_text(n, R"("t%d")") + "]"), "n"); }},
      {"arguments of one node", 1000, false, [](std::size_t n) { return graph_text(call_text("n", "torch.neg", list_text(n, "%d")), "n"); }},
      {"named arguments of one node", 450, false,
       [](std::size_t n) { return graph_text(call_text("n", "torch.neg", kLogprobs, list_text(n, R"("k%d":1)")), "n"); }},
      {"an index of as many Nones as there are elements", 1000, false,
       [](std::size_t n) {
         const std::string many = call_text("many", "torch.arange", std::to_string(n));
         return graph_text(many + call_text("n", "operator.getitem", ref_text("many") + R"(,{"tuple":[{"ellipsis":true},)" + list_text(n, "null") + "]}"), "n");
       }},
      {"a graph without an end", 100, false,
       [&](std::size_t n) {
         const std::string graph = chain(n, "n", "torch.neg");
         return graph.substr(0, graph.rfind(R"(,{"op":"output")")) + "]}";
       }},
      {"an operation that there is none of, at the end", 100, false,
       [&](std::size_t n) {
         std::string graph = chain(n, "n", "torch.neg");
         return graph.replace(graph.rfind("torch.sum"), 9, "torch.sun");
       }},
  };
  for (const GraphForm& form : forms) {
    EXPECT_EQ(reads_and_runs(form.make(form.size)), form.runs) << form.name;
    EXPECT_EQ(reads_and_runs(form.make(8 * form.size)), form.runs) << form.name;
    EXPECT_LT(growth(form.make, reads_and_runs, form.size), kLinearGrowth) << form.name;
  }
}

// A tensor of n rows without elements takes no memory, so that nothing limits n: work on it does not grow.
TEST(CustomLossGrowth, WhatHasNoElementsTakesNoTime) {
  const GraphForm forms[] = {
      {"joined", 1 << 15, true,
       [](std::size_t n) {
         const std::string empty = call_text("none", "torch.zeros", std::to_string(n) + ",0");
         return graph_text(empty + call_text("joined", "torch.cat", "[" + list_text(64, ref_text("none")) + "],1") +
                               call_text("sum", "torch.sum", ref_text("joined")) + call_text("n", "torch.add", ref_text("sum") + "," + kLogprobs),
                           "n");
       }},
      {"multiplied", 1 << 20, true,
       [](std::size_t n) {
         const std::string empty = call_text("none", "torch.zeros", std::to_string(n) + ",0") + call_text("right", "torch.zeros", "0,0");
         return graph_text(empty + call_text("product", "torch.mm", ref_text("none") + "," + ref_text("right")) +
                               call_text("sum", "torch.sum", ref_text("product")) + call_text("n", "torch.add", ref_text("sum") + "," + kLogprobs),
                           "n");
       }},
      {"selected", 1 << 9, true,
       [](std::size_t n) {
         const std::string empty = call_text("none", "torch.zeros", std::to_string(n) + "," + std::to_string(n) + ",0");
         return graph_text(empty + call_text("part", "operator.getitem", ref_text("none") + R"(,{"ellipsis":true})") +
                               call_text("sum", "torch.sum", ref_text("part")) + call_text("n", "torch.add", ref_text("sum") + "," + kLogprobs),
                           "n");
       }},
  };
  for (const GraphForm& form : forms) {
    EXPECT_TRUE(reads_and_runs(form.make(8 * form.size))) << form.name;
    EXPECT_LT(growth(form.make, reads_and_runs, form.size, 1.6), 1.6) << form.name;
  }
}

#endif

// An operation that reads all elements is counted, also where it makes but one number of them.
TEST(CustomLossGrowth, WhatReadsAllElementsIsCounted) {
  constexpr const char* kMany = R"({"op":"call_function","name":"many","target":"torch.arange","args":[1048576]})";
  const auto graph = [&](int places) {
    std::string nodes = R"({"op":"placeholder","name":"logprobs","target":"logprobs"},)" + std::string(kMany);
    for (int i = 0; i < places; ++i) nodes += fmt::format(R"(,{{"op":"call_function","name":"n{}","target":"torch.argmax","args":[{{"ref":"many"}}]}})", i);
    return R"({"nodes":[)" + nodes + R"(,{"op":"call_function","name":"end","target":"torch.sum","args":[{"ref":"logprobs"}]},
      {"op":"output","name":"output","target":"output","args":[{"tuple":[{"ref":"end"},{"dict":{}}]}]}]})";
  };
  const nlohmann::ordered_json inputs = read_json(R"([{"name":"logprobs","rank":1}])");
  EXPECT_TRUE(run_graph(inputs, read_json(graph(2))));
  EXPECT_FALSE(run_graph(inputs, read_json(graph(16))));
}

}  // namespace
}  // namespace lockstep
