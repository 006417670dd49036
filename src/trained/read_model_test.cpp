// A model that is only read says what the base says, or under an adapter's folder what the trainer of that adapter says.
#include "trained/read_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "checkpoint/adapter_folder.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

TEST(ReadModel, SaysWhatTheBaseAndWhatAnAdapterSays) {
  const fs::path folder = fs::path(testing::TempDir()) / ("lockstep_read_model_" + std::to_string(::getpid()));
  const std::shared_ptr<const Model> model =
      make_model(Json::parse(std::ifstream(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/glm_moe_dsa/sharing/config.json")));
  TrainedBase base;
  base.opened.model = model;
  base.opened.initial = [model] { return initial_weights(model->manifest(), 7, 0.25); };
  base.opened.runtime = std::make_shared<Runtime>(BackendOptions{.threads = 1}, model, profile_by_name("cpu-bf16w"), 128);
  base.weights = serving_model(base.opened).weights;
  const std::vector<TrainSequence> data{TrainSequence::next_token({1, 5, 7, 9, 11}), TrainSequence::next_token({3, 2, 8})};

  const auto adapted = make_trained_model(base, {.rank = 4, .train_unembed = false, .seed = 3});
  adapted->forward_backward(data, {});
  adapted->optim_step({.learning_rate = 1e-2});
  save_adapter_folder(folder, *adapted->adapter(), adapted->master_images(), "base");

  const std::vector<std::vector<float>> bare = make_read_model(base, {})->score(data), under = make_read_model(base, folder)->score(data);
  EXPECT_EQ(bare, make_trained_model(base, {.base_only = true})->score(data));
  EXPECT_EQ(under, adapted->score(data));
  EXPECT_NE(under, bare) << "the control: the adapter has learned nothing";
  EXPECT_THROW(make_read_model(base, folder / "nowhere"), Error);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
