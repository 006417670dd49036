#include "losses/custom_loss.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/give_way.h"
#include "base/philox.h"
#include "losses/graph_math.h"
#include "losses/graph_test_tools.h"

namespace lockstep {
namespace {
using LossJson = nlohmann::ordered_json;

LossJson loss_call(const char* target, LossJson arguments, const char* name, bool method = false) {
  return {{"op", method ? "call_method" : "call_function"}, {"name", name}, {"target", target}, {"args", std::move(arguments)}, {"kwargs", LossJson::object()}};
}
LossJson ref(const char* name) { return {{"ref", name}}; }
LossJson loss_graph(std::vector<LossJson> calls, const char* loss, LossJson metrics = LossJson::object()) {
  LossJson nodes = LossJson::array({{{"op", "placeholder"}, {"name", "logprobs"}, {"target", "logprobs"}},
                                    {{"op", "placeholder"}, {"name", "a"}, {"target", "a"}},
                                    {{"op", "placeholder"}, {"name", "mask"}, {"target", "mask"}}});
  for (LossJson& call : calls) nodes.push_back(std::move(call));
  nodes.push_back({{"op", "output"},
                   {"name", "output"},
                   {"target", "output"},
                   {"args", LossJson::array({{{"tuple", LossJson::array({ref(loss), {{"dict", metrics}}})}}})}});
  return {{"format", 1}, {"nodes", nodes}};
}
CustomLoss::Result run_loss(const LossJson& graph, const std::vector<float>& logprobs) {
  NamedTensor a, mask;
  a.shape = mask.shape = {static_cast<std::int64_t>(logprobs.size())};
  for (std::size_t i = 0; i < logprobs.size(); ++i) a.floats.push_back(0.5f - static_cast<float>(i)), mask.integers.push_back(i % 3 != 1);
  mask.is_float = false;
  return CustomLoss("made", graph_test_inputs(), graph).run(logprobs, a.shape, {{"a", a}, {"mask", mask}});
}
std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

// min(r A, clamp(r) A) over the mask, by hand: exp(lp) is r.
TEST(CustomLoss, AClippedPolicyHasItsGradient) {
  const LossJson graph =
      loss_graph({loss_call("torch.exp", LossJson::array({ref("logprobs")}), "r"), loss_call("torch.clamp", {ref("r"), 0.3, 0.7}, "c"),
                  loss_call("operator.mul", {ref("r"), ref("a")}, "ra"), loss_call("operator.mul", {ref("c"), ref("a")}, "ca"),
                  loss_call("torch.min", {ref("ra"), ref("ca")}, "m"), loss_call("operator.mul", {ref("m"), ref("mask")}, "masked"),
                  loss_call("sum", LossJson::array({ref("masked")}), "s", true), loss_call("operator.neg", LossJson::array({ref("s")}), "loss")},
                 "loss", {{"custom/r:mean", ref("s")}});
  const std::vector<float> logprobs{-0.5f, -0.1f, -0.2f, -2.0f};
  const CustomLoss::Result result = run_loss(graph, logprobs);
  double loss = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const double r = graph_math::exponential(static_cast<double>(logprobs[i])), a = 0.5 - static_cast<double>(i), m = i % 3 != 1;
    const double clipped = std::clamp(r, 0.3, 0.7);
    loss -= std::min(r * a, clipped * a) * m;
    const double slope = r * a <= clipped * a ? -r * a * m : 0.0;
    EXPECT_FLOAT_EQ(result.gradient[i], static_cast<float>(slope)) << i;
  }
  EXPECT_DOUBLE_EQ(result.loss, loss);
  EXPECT_EQ(result.metrics, std::vector<double>{-result.loss});
}

TEST(CustomLoss, ADatumsBitsAreItsOwnAndRepeat) {
  const LossJson graph = loss_graph({loss_call("torch.nn.functional.log_softmax", {ref("logprobs"), 0}, "l"),
                                     loss_call("operator.mul", {ref("l"), ref("a")}, "p"), loss_call("torch.sum", LossJson::array({ref("p")}), "loss")},
                                    "loss");
  const auto one = run_loss(graph, {-1, -2, -3, -4, -5}), other = run_loss(graph, {-1, -2, -3, -4, -5}), control = run_loss(graph, {-1, -2, -3, -4, -5.5});
  EXPECT_EQ(one.gradient, other.gradient);
  EXPECT_EQ(one.loss, other.loss);
  EXPECT_NE(one.gradient, control.gradient);
}

// Ties share a maximum's gradient; what is not chosen takes nothing, however infinite.
TEST(CustomLoss, TiesAndChoices) {
  const LossJson most = loss_graph({loss_call("torch.max", LossJson::array({ref("logprobs")}), "loss")}, "loss");
  EXPECT_EQ(run_loss(most, {-1, -1, -2}).gradient, (std::vector<float>{0.5f, 0.5f, 0.0f}));
  const LossJson guarded =
      loss_graph({loss_call("operator.eq", {ref("mask"), 1}, "on"), loss_call("torch.log", LossJson::array({ref("logprobs")}), "nan"),
                  loss_call("torch.where", {ref("on"), ref("logprobs"), ref("a")}, "w"), loss_call("torch.sum", LossJson::array({ref("w")}), "loss")},
                 "loss");
  EXPECT_EQ(run_loss(guarded, {-1, -2, -3}).gradient, (std::vector<float>{1, 0, 1}));
}

TEST(CustomLoss, LimitsAndFaultsNameTheNode) {
  const auto graph_of = [](LossJson call) { return loss_graph({std::move(call), loss_call("torch.sum", LossJson::array({ref("y")}), "loss")}, "loss"); };
  EXPECT_NE(message_of([&] { run_loss(graph_of(loss_call("torch.save", LossJson::array({ref("logprobs")}), "y")), {-1}); }).find("node 'y' (torch.save)"),
            std::string::npos);
  EXPECT_NE(message_of([&] { run_loss(graph_of(loss_call("torch.zeros", LossJson::array({1 << 26}), "y")), {-1}); }).find("node 'y' (torch.zeros)"),
            std::string::npos);
  EXPECT_NE(message_of([&] { run_loss(graph_of(loss_call("torch.sum", {ref("logprobs"), 3}, "y")), {-1}); }).find("dimension 3"), std::string::npos);
  // Work that doubles with every node stops.
  std::vector<LossJson> calls;
  std::vector<std::string> names{"logprobs"};
  for (int i = 0; i < 60; ++i) {
    names.push_back("c" + std::to_string(i));
    calls.push_back(loss_call("torch.cat", LossJson::array({LossJson::array({ref(names[names.size() - 2].c_str()), ref(names[names.size() - 2].c_str())})}),
                              names.back().c_str()));
  }
  calls.push_back(loss_call("torch.sum", LossJson::array({ref(names.back().c_str())}), "loss"));
  EXPECT_NE(message_of([&] { run_loss(loss_graph(calls, "loss"), {-1}); }).find("allowed are"), std::string::npos);
  EXPECT_NE(message_of([] { CustomLoss("x", LossJson::array(), LossJson::object()); }), "");
  EXPECT_NE(message_of([] { CustomLoss("x", graph_test_inputs(), {{"format", 2}, {"nodes", LossJson::array()}}); }).find("allowed is 1"), std::string::npos);
}

// Others wait for a datum's end: it has a limit, whose refusal has the figures.
TEST(CustomLoss, ADatumHasALimit) {
  const auto run = [](std::int64_t rows) {
    const LossJson sizes = LossJson::array({rows, 200});
    return message_of([&] {
      run_loss(loss_graph({loss_call("torch.ones", LossJson::array({sizes}), "left"), loss_call("torch.ones", LossJson::array({200, 200}), "right"),
                           loss_call("torch.mm", {ref("left"), ref("right")}, "p"), loss_call("torch.sum", LossJson::array({ref("p")}), "s"),
                           loss_call("torch.mul", {ref("logprobs"), ref("s")}, "m"), loss_call("torch.sum", LossJson::array({ref("m")}), "loss")},
                          "loss"),
               {-1});
    });
  };
  EXPECT_EQ(run(300), "");
  const std::string message = run(450);
  EXPECT_NE(message.find("node 'p' (torch.mm) of the loss 'made': the loss computes more elements than a datum may take: "), std::string::npos) << message;
  EXPECT_NE(message.find("and 40000 here; allowed are 16777216 in all"), std::string::npos) << message;
}

// Live tokens wait for a block of a loss's elements, forward and back, not for a datum or a node.
TEST(CustomLoss, LongTensorsGiveWay) {
  struct Counted final : PausePoint {
    std::int64_t count = 0;
    void pause() override { ++count; }
    std::int64_t longest_kernel() const override { return 0; }
  };
  // Of a sum over what the call makes of "x", which has so many elements.
  const auto pauses_of = [](const LossJson& call, std::int64_t elements) {
    const LossJson graph =
        loss_graph({loss_call("torch.zeros", LossJson::array({elements}), "z"), loss_call("operator.add", LossJson::array({ref("z"), ref("logprobs")}), "x"),
                    call, loss_call("torch.sum", LossJson::array({ref("y")}), "loss")},
                   "loss");
    Counted counted;
    thread_pause_point = &counted;
    run_loss(graph, {-1});
    thread_pause_point = nullptr;
    return counted.count;
  };
  struct Row {
    const char* name;
    LossJson call;
    std::int64_t loops;  // over all elements, forward and back: with those of the sum and of what makes x
    std::int64_t grown;  // vectors of as many elements, which are made in steps of two blocks
  };
  constexpr std::int64_t kBlock = std::int64_t{1} << 16, kBlocks = 4;
  const Row rows[] = {
      {"itself", loss_call("torch.clone", LossJson::array({ref("x")}), "y"), 6, 6},
      {"the greatest", loss_call("torch.amax", LossJson::array({ref("x")}), "y"), 7, 6},
      {"running sums", loss_call("torch.cumsum", LossJson::array({ref("x"), 0}), "y"), 9, 9},
      {"turned round", loss_call("torch.flip", LossJson::array({ref("x"), LossJson::array({0})}), "y"), 11, 10},
      {"a product", loss_call("torch.dot", LossJson::array({ref("x"), ref("z")}), "y"), 10, 10},
  };
  for (const Row& row : rows) {
    const std::int64_t more = pauses_of(row.call, kBlocks * kBlock) - pauses_of(row.call, 1);
    EXPECT_GT(more, (row.loops - 1) * kBlocks + row.grown) << row.name;  // a loop that is not divided would be seen
  }
  EXPECT_GE(pauses_of(rows[0].call, 1), 3 + 2);  // a node, and its backward
}

// Whatever the graph: a result of finite numbers, or a fault of the client's.
TEST(CustomLoss, AnyGraphIsRunOrRefused) {
  RandomSequence draws(7, RandomStream::fuzz);
  int ran = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::uint8_t> bytes(8 + draws.below(round % 2 ? 60 : 12));
    for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(draws.below(256));
    ran += run_graph(graph_test_inputs(), GraphDraws(bytes).graph());
  }
  EXPECT_GT(ran, 20);  // some are right
}

TEST(CustomLoss, ElementaryFunctionsAreThoseOfTheLibrary) {
  for (double x : {-700.0, -30.0, -3.0, -0.5, -1e-3, -1e-9, 0.0, 1e-12, 1e-6, 1e-4, 0.3, 0.9, 1.7, 10.0, 100.0, 705.0, 709.5}) {
    EXPECT_NEAR(graph_math::exponential(x), std::exp(x), 4e-15 * std::exp(x)) << x;
    EXPECT_NEAR(graph_math::exponential_minus_1(x), std::expm1(x), 1e-14 * std::fabs(std::expm1(x))) << x;
    EXPECT_NEAR(graph_math::hyperbolic_tangent(x), std::tanh(x), 1e-14 * std::fabs(std::tanh(x))) << x;
    if (x > -1) {
      EXPECT_NEAR(graph_math::logarithm_of_1_plus(x), std::log1p(x), 1e-14 * std::fabs(std::log1p(x))) << x;
    }
    if (x > 0) {
      EXPECT_NEAR(graph_math::logarithm(x), std::log(x), 1e-14 * std::fabs(std::log(x))) << x;
      EXPECT_NEAR(graph_math::power(x, 0.37), std::pow(x, 0.37), 1e-13 * std::pow(x, 0.37)) << x;
    }
    EXPECT_DOUBLE_EQ(graph_math::power(x, 3), x * x * x) << x;
  }
  EXPECT_EQ(graph_math::exponential(800), graph_math::kInfinity);
  EXPECT_EQ(graph_math::logarithm(0), -graph_math::kInfinity);
  EXPECT_TRUE(std::isnan(graph_math::logarithm(-1)));
}

}  // namespace
}  // namespace lockstep
