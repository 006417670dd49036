// Distillation whose teacher is the path of weights that were saved for sampling: the server scores each piece's tokens under them, over ranks too, to the
// bits of one rank and one piece, and to those of a client that tells the same log-probabilities; another teacher is seen. A batch that waits holds none of
// its teacher's memory.
#include <gtest/gtest.h>

#include "host/training_test_tools.h"

namespace lockstep {
namespace {

constexpr std::int64_t kVocabulary = 64;  // kTrainingModel's

// Every token of the vocabulary at each place.
TrainingBatch taught_batch(const std::string& teacher) {
  TrainingBatch batch = training_batch(5, 5);
  batch.loss.name = "distill";
  batch.loss.config["averaging"] = std::string("token_mean");
  if (!teacher.empty()) batch.loss.config["teacher"] = teacher;
  for (TrainingDatum& datum : batch.data) {
    NamedTensor& targets = datum.inputs.at("target_tokens");
    targets = NamedTensor{.shape = {std::ssize(datum.tokens), kVocabulary}, .floats = {}, .integers = {}, .is_float = false};
    for (std::size_t row = 0; row < datum.tokens.size(); ++row)
      for (std::int64_t token = 0; token < kVocabulary; ++token) targets.integers.push_back(token);
    datum.inputs["weights"] =
        NamedTensor{.shape = targets.shape, .floats = std::vector<float>(targets.integers.size(), 1.0f), .integers = {}, .is_float = true};
  }
  return batch;
}

// A service whose models are a student, and teachers of a step each, with the paths of their weights.
struct School : TrainingBench {
  School(std::int64_t tokens, const RankLayout& ranks, std::int64_t rank)
      : TrainingBench({.tokens_a_step = tokens, .turn_seconds = 0}, {.threads = 1}, {}, ranks), own(session()), student(model(own, 0, rank)) {}
  std::string told(const std::string& request) {
    const Outcome outcome = result(request);
    EXPECT_FALSE(outcome.failed()) << outcome.message;
    return outcome.bytes;
  }
  std::string teacher(std::int64_t number, std::int64_t rank) {
    const std::string id = model(own, number, rank);
    told(batch(id, 1, training_batch(static_cast<std::uint64_t>(number), 3)));
    told(step(id, 2));
    const SaveRequest wanted{.kind = "sampler_weights", .name = "teacher"};
    return told(service->operations().save("me", id, 3, wanted, [](const CheckpointRecord& r) { return Outcome{"text/plain", r.path(), {}, {}}; }));
  }
  // What the student is told of the batch, and of the step behind it, which has the gradient's norm.
  std::string learned(const TrainingBatch& data) {
    const std::string of_batch = told(batch(student, 1, data));
    return of_batch + told(step(student, 2));
  }

  const std::string own, student;
};

TEST(TaughtLosses, ATeacherByItsPathHasTheBitsOfOneRank) {
  struct Way {
    std::int64_t tokens;  // a piece
    RankLayout ranks = {};
  };
  for (const std::int64_t rank : {0, 4}) {  // of the student's adapter; 0: all weights
    SCOPED_TRACE(rank);
    std::vector<std::string> bits;
    for (const Way& way : {Way{4096}, {20}, {20, {2, 1, 1}}, {4096, {1, 2, 1}}, {20, {2, 2, 2}}}) {
      SCOPED_TRACE(way.ranks.text());
      School school(way.tokens, way.ranks, rank);
      bits.push_back(school.learned(taught_batch(school.teacher(1, 4 - rank))));  // of the other kind
      EXPECT_EQ(bits.back(), bits.front()) << "pieces of " << way.tokens << " tokens";
    }
    School other(4096, {2, 1, 1}, rank);
    EXPECT_NE(other.learned(taught_batch(other.teacher(2, 4 - rank))), bits.front()) << "a teacher of other data teaches the same";
  }
}

TEST(TaughtLosses, AClientThatTellsTheTeachersNumbersHasItsBits) {
  std::vector<std::string> bits;
  for (const bool told : {false, true}) {
    School school(4096, {2, 1, 1}, 4);
    const std::string path = school.teacher(1, 0);
    TrainingBatch data = taught_batch(told ? "" : path);
    if (told) {
      const std::string teacher = path.substr(path.find("://") + 3, path.find("/sampler_weights") - path.find("://") - 3);
      TrainingBatch asked = data;
      asked.loss = {.name = "cross_entropy", .config = {}, .dialect = LossDialect::tinker};
      asked.forward_only = true;
      std::vector<std::vector<float>> logprobs;
      const std::string forward = school.service->operations().forward_backward("me", teacher, 4, std::move(asked), [&](const TrainingOutput& output) {
        for (const DatumOutput& datum : output.data) logprobs.push_back(datum.logprobs);
        return Outcome{"text/plain", "told", {}, {}};
      });
      ASSERT_EQ(school.told(forward), "told");
      ASSERT_EQ(logprobs.size(), data.data.size());
      for (std::size_t d = 0; d < logprobs.size(); ++d)
        data.data[d].inputs["teacher_logprobs"] =
            NamedTensor{.shape = data.data[d].inputs.at("target_tokens").shape, .floats = logprobs[d], .integers = {}, .is_float = true};
    }
    bits.push_back(school.learned(data));
  }
  EXPECT_EQ(bits[0], bits[1]);
}

// A key that sends many batches with teachers and leaves a number out would hold all of their weights, and others would be refused for want of memory.
TEST(TaughtLosses, ABatchThatWaitsHoldsNoWeightsOfItsTeacher) {
  School school(4096, {}, 4);
  const std::string path = school.teacher(1, 4);
  school.service.reset();  // what starts again has read no weights
  const auto ledger = school.base->ledger = std::make_shared<MemoryLedger>(std::int64_t{1} << 30);
  school.service = std::make_shared<TrainingService>(school.base, school.generation, TrainingServiceOptions{.state = school.folder});
  const std::string second = school.batch(school.student, 2, taught_batch(path));
  EXPECT_EQ(ledger->held("samplers"), 0);
  school.told(school.batch(school.student, 1, training_batch(2, 3)));
  school.told(second);
  EXPECT_GT(ledger->held("samplers"), 0);  // it was read after all, and may go
}

TEST(TaughtLosses, ATeacherIsFoundWhenTheBatchsTurnHasCome) {
  School school(4096, {}, 4);
  const std::string path = school.teacher(1, 4);
  const std::string second = school.batch(school.student, 2, taught_batch(path));  // number 1 is missing
  school.service->checkpoints().remove("me", path);
  school.told(school.batch(school.student, 1, training_batch(2, 3)));
  const Outcome outcome = school.result(second);
  EXPECT_TRUE(outcome.failed());
  EXPECT_NE(outcome.message.find("there is no checkpoint '" + path), std::string::npos) << outcome.message;
}

}  // namespace
}  // namespace lockstep
