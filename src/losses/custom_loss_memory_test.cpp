// What a traced loss takes is told before it is taken, whatever its operations, and no work is told as memory. Allocations of this program come through here.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "losses/graph_test_tools.h"

namespace {
std::atomic<std::int64_t> live_bytes{0}, most_bytes{0};
}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(std::size_t size) {
  void* const block = std::malloc(size > 0 ? size : 1);
  if (!block) throw std::bad_alloc();
  const std::int64_t now = live_bytes += static_cast<std::int64_t>(malloc_usable_size(block));
  if (now > most_bytes) most_bytes = now;
  return block;
}
// Not inlined: the compiler would see free() meet operator new.
__attribute__((noinline)) void operator delete(void* block) noexcept {
  if (block) live_bytes -= static_cast<std::int64_t>(malloc_usable_size(block));
  std::free(block);
}
__attribute__((noinline)) void operator delete(void* block, std::size_t) noexcept { operator delete(block); }
#endif

namespace lockstep {
namespace {
using MemoryJson = nlohmann::ordered_json;
using Calls = std::vector<MemoryJson>;
constexpr std::int64_t kLength = std::int64_t{1} << 15;

MemoryJson ref_to(const char* name) { return {{"ref", name}}; }
MemoryJson calling(const char* name, const char* target, MemoryJson arguments) {
  return {{"op", "call_function"}, {"name", name}, {"target", target}, {"args", std::move(arguments)}, {"kwargs", MemoryJson::object()}};
}
// The nodes, the last of which is "y", and the sum of it.
CustomLoss loss_of(Calls calls) {
  MemoryJson nodes = MemoryJson::array();
  nodes.push_back({{"op", "placeholder"}, {"name", "logprobs"}, {"target", "logprobs"}});
  for (MemoryJson& call : calls) nodes.push_back(std::move(call));
  MemoryJson all = MemoryJson::array(), ended = MemoryJson::array(), returned = MemoryJson::array();
  all.push_back(ref_to("y"));
  nodes.push_back(calling("loss", "torch.sum", all));
  ended.push_back(ref_to("loss"));
  ended.push_back({{"dict", MemoryJson::object()}});
  returned.push_back({{"tuple", ended}});
  nodes.push_back({{"op", "output"}, {"name", "output"}, {"target", "output"}, {"args", returned}});
  MemoryJson input, inputs = MemoryJson::array(), graph;
  input["name"] = "logprobs";
  input["rank"] = 1;
  inputs.push_back(input);
  graph["format"] = 1;
  graph["nodes"] = nodes;
  return CustomLoss("made", inputs, graph);
}
MemoryJson list_of(std::initializer_list<MemoryJson> items) {
  MemoryJson list = MemoryJson::array();
  for (const MemoryJson& item : items) list.push_back(item);
  return list;
}
// One call of the log-probabilities.
Calls single_call(const char* target) { return {calling("y", target, list_of({ref_to("logprobs")}))}; }

struct Told {
  std::int64_t bytes = 0, most = 0;  // told in all, and taken at one time
  bool late = false;                 // more was taken than had been told
};
Told told_of(const CustomLoss& loss, std::int64_t length = kLength) {
  const std::vector<float> logprobs(static_cast<std::size_t>(length), -0.5f);
  const std::vector<std::int64_t> shape{length};
  const std::map<std::string, NamedTensor> inputs{};
  Told told;
  most_bytes = live_bytes.load();
  const std::int64_t before = live_bytes;
  loss.run(logprobs, shape, inputs, [&](std::int64_t bytes) {
    told.late = told.late || most_bytes - before > told.bytes;
    told.bytes = bytes;
  });
  told.most = most_bytes - before;
  return told;
}

std::vector<std::pair<const char*, Calls>> graphs() {
  const MemoryJson lp = ref_to("logprobs"), column = list_of({kLength, 1}), rows = list_of({128, kLength / 128});
  std::vector<std::pair<const char*, Calls>> all;
  for (const char* target : {"torch.exp", "torch.max", "torch.std", "torch.mean"}) all.emplace_back(target, single_call(target));
  for (const char* target : {"torch.logsumexp", "torch.softmax", "torch.log_softmax", "torch.cumsum"})
    all.emplace_back(target, Calls{calling("y", target, list_of({lp, 0}))});
  all.emplace_back("largest of each row", Calls{calling("c", "torch.reshape", list_of({lp, column})), calling("m", "torch.max", list_of({ref_to("c"), 1})),
                                                calling("y", "operator.getitem", list_of({ref_to("m"), 0}))});
  all.emplace_back("joined", Calls{calling("y", "torch.cat", list_of({list_of({lp, lp, lp})}))});
  all.emplace_back("masked", Calls{calling("on", "torch.lt", list_of({lp, 0})), calling("y", "operator.getitem", list_of({lp, ref_to("on")}))});
  all.emplace_back("every second", Calls{calling("y", "operator.getitem", list_of({lp, {{"slice", list_of({nullptr, nullptr, 2})}}}))});
  all.emplace_back("detached", Calls{calling("d", "torch.detach", list_of({lp})), calling("y", "torch.mul", list_of({lp, ref_to("d")}))});
  all.emplace_back("turned", Calls{calling("r", "torch.reshape", list_of({lp, rows})), calling("y", "torch.t", list_of({ref_to("r")}))});
  all.emplace_back("spread", Calls{calling("z", "torch.zeros", list_of({8, kLength})), calling("y", "torch.add", list_of({ref_to("z"), lp}))});
  all.emplace_back("any of each", Calls{calling("c", "torch.reshape", list_of({lp, column})), calling("on", "torch.lt", list_of({ref_to("c"), 0})),
                                        calling("a", "torch.all", list_of({ref_to("on"), 1})), calling("y", "torch.where", list_of({ref_to("a"), lp, 0}))});
  return all;
}

TEST(CustomLossMemory, WhatIsTakenIsToldBefore) {
  for (const auto& [name, calls] : graphs()) {
    SCOPED_TRACE(name);
    const Told told = told_of(loss_of(calls));
    EXPECT_FALSE(told.late);
    EXPECT_LE(told.most, told.bytes);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_GT(told.most, 2 * kLength * static_cast<std::int64_t>(sizeof(double)));  // what is counted, is
    EXPECT_LT(told.bytes, 4 * told.most + (std::int64_t{2} << 20));                 // a figure, not just a large number
#endif
  }
}

// Many nodes of few elements, whose tensors themselves are what they take.
TEST(CustomLossMemory, SmallTensorsCountWithWhatTheyAre) {
  std::vector<std::string> names{"logprobs"};
  Calls calls;
  for (int i = 0; i < 1500; ++i) {
    names.push_back(i == 1499 ? "y" : "n" + std::to_string(i));
    calls.push_back(calling(names.back().c_str(), "torch.neg", list_of({ref_to(names[names.size() - 2].c_str())})));
  }
  const Told told = told_of(loss_of(calls), 4);
  EXPECT_FALSE(told.late);
  EXPECT_LE(told.most, told.bytes);
}

// The products of two matrices are work, and so is looking for the largest of many.
TEST(CustomLossMemory, WorkIsNoMemory) {
  const CustomLoss loss = loss_of({calling("a", "torch.ones", list_of({200, 200})), calling("p", "torch.mm", list_of({ref_to("a"), ref_to("a")})),
                                   calling("s", "torch.sum", list_of({ref_to("p")})), calling("y", "torch.mul", list_of({ref_to("logprobs"), ref_to("s")}))});
  EXPECT_LT(told_of(loss, 4).bytes, std::int64_t{8} << 20);
}

TEST(CustomLossMemory, WhereThereIsNoRoomTheNodeSaysSo) {
  const CustomLoss loss = loss_of({calling("z", "torch.zeros", list_of({1 << 20})), calling("s", "torch.sum", list_of({ref_to("logprobs")})),
                                   calling("y", "torch.add", list_of({ref_to("z"), ref_to("s")}))});
  try {
    loss.run({-1}, {1}, {}, [](std::int64_t bytes) {
      if (bytes > std::int64_t{4} << 20) fail(ErrorCode::resource_exhausted, "no room for {}", bytes);
    });
    FAIL() << "it ran";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resource_exhausted);
    EXPECT_TRUE(e.message().starts_with("node 'z' (torch.zeros) of the loss 'made': no room for ")) << e.message();
  }
  EXPECT_NO_THROW(loss.run({-1}, {1}, {}));
}

// One whose dimensions are long takes nothing while one of them is empty, and all the others have where a sum goes over that one.
TEST(CustomLossMemory, AnEmptyTensorHasALimitToo) {
  const CustomLoss loss = loss_of({calling("z", "torch.zeros", list_of({1 << 20, 0, 1 << 20})), calling("a", "torch.all", list_of({ref_to("z"), 1})),
                                   calling("y", "torch.where", list_of({ref_to("a"), ref_to("logprobs"), 0}))});
  try {
    loss.run({-1}, {1}, {});
    FAIL() << "it ran";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("node 'z' (torch.zeros) of the loss 'made': a tensor of shape [1048576, 0, 1048576]; allowed are"), std::string::npos)
        << e.message();
  }
}

}  // namespace
}  // namespace lockstep
