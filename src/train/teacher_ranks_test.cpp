// What a teacher moves has the bits of one rank over ranks that share the vocabulary, and where the teacher's head came as plain values, as to another process.
#include <gtest/gtest.h>

#include "base/error.h"
#include "train/teacher_head.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

std::string llama(int vocabulary, int hidden, bool tied) {
  return fmt::format(
      R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": {}, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "max_position_embeddings": 1024, "intermediate_size": 96, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": {},
    "hidden_act": "silu"}})",
      vocabulary, hidden, tied);
}

struct Lesson {
  std::shared_ptr<Runtime> runtime;  // the teacher's
  std::shared_ptr<const TeacherHead> head;
  std::vector<TrainSequence> data;
};
Lesson lesson_of(int vocabulary, const std::string& profile) {
  const TrainBench teacher(llama(vocabulary, 48, false));
  Lesson lesson;
  lesson.runtime = std::make_shared<Runtime>(BackendOptions{.threads = 1}, teacher.model, profile_by_name(profile), 600);
  const std::shared_ptr<const WeightSet> weights =
      make_weight_set(lesson.runtime->backend, teacher.model->manifest(), teacher.masters, lesson.runtime->profile, 0);
  lesson.head = std::make_shared<const TeacherHead>(teacher_head(lesson.runtime, weights));
  lesson.data = sequences(vocabulary, 4, 60);
  std::vector<TaughtText> texts;
  for (const TrainSequence& one : lesson.data) texts.push_back({.tokens = one.tokens});
  std::vector<std::vector<float>> states = teacher_states(*lesson.runtime, *weights, texts);
  for (std::size_t i = 0; i < lesson.data.size(); ++i) lesson.data[i].teacher = lesson.head, lesson.data[i].teacher_states = std::move(states[i]);
  return lesson;
}

struct Learnt {
  ForwardBackwardResult result;
  WeightImages gradients;
};
Learnt learnt(const TrainBench& student, const std::string& profile, const std::vector<TrainSequence>& data, Divergence divergence,
              const RankLayout& ranks = {}) {
  Runtime runtime({.threads = 1}, student.model, profile_by_name(profile), 600);
  Trainer trainer(runtime, student.masters, {.ranks = ranks});
  LossOptions loss;
  loss.kind = LossKind::divergence;
  loss.averaging = LossAveraging::sum;
  loss.parameters.divergence = divergence;
  Learnt learnt;
  learnt.result = trainer.forward_backward(data, loss);
  learnt.gradients = trainer.gradient_images();
  return learnt;
}

void expect_same_lesson(const Manifest& manifest, const Learnt& got, const Learnt& want, const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_EQ(got.result.losses, want.result.losses);
  EXPECT_EQ(got.result.logprobs, want.result.logprobs);
  EXPECT_EQ(got.result.entropies, want.result.entropies);
  EXPECT_EQ(difference(manifest, got.gradients, want.gradients), "");
}

TEST(TeacherRanks, SharesOfTheVocabularyHaveTheBitsOfOneRank) {
  for (const bool tied : {true, false})
    for (const std::string profile : {"cpu-f32", "cpu-bf16w"}) {
      const TrainBench student(llama(256, 64, tied));  // 8 leaves of 32 tokens
      const Lesson lesson = lesson_of(256, profile);
      for (const Divergence divergence : {Divergence::reverse, Divergence::forward, Divergence::jensen_shannon}) {
        const Learnt want = learnt(student, profile, lesson.data, divergence);
        for (const RankLayout& ranks :
             profile == "cpu-f32" ? std::vector<RankLayout>{{2, 1, 1}, {3, 2, 1}, {11, 1, 1}, {1, 2, 1, 2}, {2, 1, 1, 2}} : std::vector<RankLayout>{{3, 2, 1}})
          expect_same_lesson(student.model->manifest(), learnt(student, profile, lesson.data, divergence, ranks), want,
                             fmt::format("{}, divergence {}, {}", profile, static_cast<int>(divergence), ranks.text()));
      }
      const Learnt reverse = learnt(student, profile, lesson.data, Divergence::reverse), forward = learnt(student, profile, lesson.data, Divergence::forward);
      EXPECT_NE(difference(student.model->manifest(), forward.gradients, reverse.gradients), "");  // the control
    }
}

TEST(TeacherRanks, AHeadThatCameAsPlainValuesTeachesTheSame) {
  for (const std::string profile : {"cpu-f32", "cpu-bf16w"}) {
    const TrainBench student(llama(256, 64, true));
    Lesson lesson = lesson_of(256, profile);
    const Learnt want = learnt(student, profile, lesson.data, Divergence::forward, {2, 1, 1});
    ByteWriter out;
    put_teacher_head(out, *lesson.head);
    ByteReader in(out.bytes());
    const auto other = std::make_shared<Runtime>(BackendOptions{.threads = 1}, student.model, profile_by_name(profile), 600);
    const auto head = std::make_shared<const TeacherHead>(taken_teacher_head(in, other));
    EXPECT_EQ(in.left(), 0u);
    lesson.head.reset();
    for (TrainSequence& one : lesson.data) one.teacher = head;
    expect_same_lesson(student.model->manifest(), learnt(student, profile, lesson.data, Divergence::forward, {2, 1, 1}), want, profile);
  }
}

// 150 tokens are two leaves of 75.
TEST(TeacherRanks, SharesThatBeginInsideAGroupOfTokensAreRefused) {
  const TrainBench student(llama(150, 64, true));
  const Lesson lesson = lesson_of(150, "cpu-f32");
  std::string why = "accepted";
  try {
    learnt(student, "cpu-f32", lesson.data, Divergence::reverse, {2, 1, 1});
  } catch (const Error& e) {
    why = e.what();
  }
  EXPECT_NE(why.find("of 150 tokens one begins at 75"), std::string::npos) << why;
}

}  // namespace
}  // namespace lockstep
