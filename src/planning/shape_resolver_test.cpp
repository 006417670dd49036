// Which shape a request gets, why, and the memory of each shape.
#include "planning/shape_resolver.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "planning/memory_plan.h"

namespace lockstep {
namespace {

const ShapeCatalog& shapes() {
  static const ShapeCatalog one = ShapeCatalog::published();
  return one;
}
std::string chosen(const ShapeRequest& request) {
  const ShapeChoice choice = resolve_shape(shapes(), request);
  return choice.shape ? choice.shape->id : "";
}
std::string reasons(const ShapeRequest& request, const std::string& id) {
  for (const RejectedShape& r : resolve_shape(shapes(), request).rejected)
    if (r.id == id) return fmt::format("{}", fmt::join(r.reasons, " | "));
  return "not rejected";
}
std::int64_t part(const ShapeMemory& m, ShapePart p) { return m.bytes[static_cast<std::size_t>(p)]; }

TEST(ShapeResolver, ChoosesByModelModeAndContext) {
  EXPECT_EQ(chosen({.model = "Qwen/Qwen3-8B", .context = 100'000}), "qwen3-8b-128k");
  EXPECT_EQ(chosen({.model = "Qwen/Qwen3-8B", .context = 128'000}), "qwen3-8b-128k");
  EXPECT_EQ(chosen({.model = "Qwen/Qwen3-8B", .context = 128'001}), "");
  EXPECT_EQ(chosen({.model = "Qwen/Qwen3-8B", .forward_only = true}), "qwen3-8b-128k-reference");
  EXPECT_EQ(chosen({.model = "Kimi K2.5", .lora_rank = 16}), "kimi-k2p5-lora-256k");
  EXPECT_EQ(chosen({.model = "Kimi K2.5", .accelerator = "B200", .accelerators = 64}), "kimi-k2p5-256k");
  EXPECT_EQ(chosen({.model = "countdown-glm", .context = 200, .accelerator = "CPU", .accelerators = 1}), "countdown-glm-cpu");
}

TEST(ShapeResolver, SaysWhyNot) {
  const ShapeRequest few{.model = "qwen3p5-397b-a17b", .context = 1000, .accelerator = "B200", .accelerators = 16};
  EXPECT_NE(reasons(few, "qwen3p5-397b-a17b-262k").find("it needs 32 accelerators, 16 are given"), std::string::npos);
  const ShapeRequest fewer{.model = "qwen3p5-397b-a17b", .context = 1000, .accelerator = "B200", .accelerators = 8};
  EXPECT_NE(reasons(fewer, "qwen3p5-397b-a17b-262k").find("does not fit in memory by "), std::string::npos);
  EXPECT_NE(reasons({.model = "Qwen3 8B", .context = 128'001}, "qwen3-8b-128k").find("its context is 128000, 128001 tokens are asked for"), std::string::npos);
  EXPECT_NE(reasons({.model = "Qwen3 8B", .lora_rank = 8}, "qwen3-8b-128k").find("asked for is a LoRA trainer"), std::string::npos);
  EXPECT_NE(reasons({.model = "Qwen3 8B", .accelerator = "H200"}, "qwen3-8b-128k").find("it is for NVIDIA_B200_180GB, there are NVIDIA_H200_141GB"),
            std::string::npos);
  EXPECT_NE(resolve_shape(shapes(), {.model = "Qwen3 8B", .lora_rank = 8}).why.find("a LoRA trainer of Qwen3 8B is missing"), std::string::npos);
}

TEST(ShapeResolver, AsksForWhatIsNotPublished) {
  const ShapeRequest bare{.model = "GLM-5.2", .context = 100'000, .lora_rank = 16};
  EXPECT_NE(reasons(bare, "glm-5p2-lora").find("is not published"), std::string::npos);
  const ShapeChoice choice = resolve_shape(shapes(), {.model = "GLM-5.2", .context = 100'000, .lora_rank = 16, .accelerator = "B300", .accelerators = 16});
  ASSERT_TRUE(choice.shape && choice.fit);
  EXPECT_TRUE(choice.fit->fits);
  EXPECT_EQ(choice.shape->context, 100'000);
  EXPECT_NE(reasons({.model = "GLM-5.2", .context = 100'000, .lora_rank = 16, .accelerator = "H100", .accelerators = 8}, "glm-5p2-lora")
                .find("does not fit in memory by "),
            std::string::npos);
}

TEST(ShapeResolver, RefusesContradictions) {
  EXPECT_THROW(resolve_shape(shapes(), {.model = "Qwen3 8B", .lora_rank = 8, .forward_only = true}), Error);
  EXPECT_THROW(resolve_shape(shapes(), {.model = "Qwen3 9B"}), Error);
  EXPECT_THROW(resolve_shape(shapes(), {.model = "Qwen3 8B", .context = -1}), Error);
}

// The formula does not contradict what is known to run; on a quarter of the devices most of it does not.
TEST(ShapeResolver, PublishedShapesFit) {
  int published = 0, on_a_quarter = 0;
  for (TrainingShape shape : shapes().shapes()) {
    if (shape.source != "published") continue;
    const std::optional<ShapeFit> fit = shapes().fit(shape);
    ASSERT_TRUE(fit) << shape.id;
    EXPECT_TRUE(fit->fits) << shape.id;
    if (shape.mode == ShapeMode::reference) continue;
    ++published;
    shape.accelerators /= 4;
    shape.layout.reset();
    on_a_quarter += shapes().fit(shape)->fits;
  }
  EXPECT_EQ(published, 13);
  EXPECT_LT(on_a_quarter, 6);
}

// What is kept of parameters has the bytes that the trainer's own accounts have, by the same names.
TEST(ShapeMemory, IsThePlanOfOurOwnTrainer) {
  const TrainingShape& shape = shapes().shape("countdown-glm-cpu");
  const ShapeMemory formula = shapes().fit(shape)->plan.memory;
  const MemoryPlan plan =
      plan_training({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .profile = "cpu-bf16w", .threads = 1}, {.sequences = 1, .length = 64})[0];
  const auto planned = [&](MemoryCategory c) { return static_cast<double>(plan.peak[static_cast<std::size_t>(c)]); };
  // The trainer fills the next version of the weights beside the one that is served: a bf16 copy more.
  const double another = 2.0 * static_cast<double>(plan.parameters);
  EXPECT_NEAR(static_cast<double>(part(formula, ShapePart::weights)) + another, planned(MemoryCategory::weights), 0.02 * planned(MemoryCategory::weights));
  EXPECT_NEAR(static_cast<double>(part(formula, ShapePart::gradients)), planned(MemoryCategory::gradients), 0.02 * planned(MemoryCategory::gradients));
  EXPECT_NEAR(static_cast<double>(part(formula, ShapePart::optimizer)), planned(MemoryCategory::optimizer), 0.02 * planned(MemoryCategory::optimizer));
}

TEST(ShapeMemory, LayoutsShareWhatTheySay) {
  const ModelSizes& sizes = *shapes().model("qwen3-30b-a3b").sizes();
  const ShapeWork work{.mode = ShapeMode::policy, .context = 65536};
  const ShapeMemory one = shape_memory(sizes, work, 1, {}, false), all = shape_memory(sizes, work, 8, {}, false),
                    cut = shape_memory(sizes, work, 8, {.cp = 4}, false);
  EXPECT_NEAR(static_cast<double>(part(one, ShapePart::weights)) / 8, static_cast<double>(part(all, ShapePart::weights)), 2);
  EXPECT_EQ(part(one, ShapePart::weights), 6 * sizes.parameters());
  EXPECT_EQ(part(one, ShapePart::optimizer), 8 * sizes.parameters());
  EXPECT_EQ(part(one, ShapePart::workspace), 0);
  EXPECT_EQ(part(cut, ShapePart::cache) * 4, part(all, ShapePart::cache));
  EXPECT_EQ(part(cut, ShapePart::weights), part(all, ShapePart::weights));
  EXPECT_LT(part(shape_memory(sizes, work, 8, {.ep = 8}, false), ShapePart::workspace), part(all, ShapePart::workspace));
  const ShapeMemory host = shape_memory(sizes, work, 8, {}, true),
                    reference = shape_memory(sizes, {.mode = ShapeMode::reference, .context = 65536}, 8, {}, false);
  EXPECT_NEAR(static_cast<double>(host.host), 12.0 / 8 * static_cast<double>(sizes.parameters()), 2);
  EXPECT_NEAR(static_cast<double>(host.total()), static_cast<double>(all.total() - host.host), 3);
  EXPECT_EQ(part(host, ShapePart::optimizer), 0);
  EXPECT_EQ(part(reference, ShapePart::gradients) + part(reference, ShapePart::optimizer) + part(reference, ShapePart::adapters), 0);
  const ShapeMemory lora = shape_memory(sizes, {.mode = ShapeMode::lora, .context = 65536, .lora_rank = 8}, 8, {}, false);
  EXPECT_EQ(part(shape_memory(sizes, {.mode = ShapeMode::lora, .context = 65536, .lora_rank = 16}, 8, {}, false), ShapePart::adapters),
            2 * part(lora, ShapePart::adapters));
}

TEST(ShapeMemory, LayoutsThatCannotBe) {
  const ModelSizes& sizes = *shapes().model("qwen3-30b-a3b").sizes();
  EXPECT_EQ(layout_fault(sizes, 8, {.tp = 2, .cp = 2, .ep = 4}), "");
  EXPECT_NE(layout_fault(sizes, 8, {.tp = 8}), "");  // four heads of keys and values
  EXPECT_NE(layout_fault(sizes, 8, {.cp = 16}), "");
  EXPECT_NE(layout_fault(sizes, 8, {.ep = 3}), "");
  EXPECT_NE(layout_fault(*shapes().model("qwen3-8b").sizes(), 8, {.ep = 2}), "");  // no experts
}

}  // namespace
}  // namespace lockstep
