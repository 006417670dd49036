// A forward that tells the likeliest tokens of every row. Targets are scored by the trainer's forward, the likeliest tokens found by the
// engine, over the weights of that moment: both are one forward, so a target among them has the same bits in both.
#include <algorithm>

#include "base/error.h"
#include "host/batch_pieces.h"
#include "host/model_operations.h"

namespace lockstep {
namespace {

struct TopRun {
  TrainingBatch batch;
  std::int64_t top_k = 0;
  PreparedBatch prepared;
  ForwardBackwardResult result;
  SamplerWeights weights;
  std::vector<Generation> generations;
  std::size_t scored = 0, asked = 0, answered = 0;  // datums
};
constexpr std::size_t kMostAtOnce = 32;  // of the engine

// The prompt's rows, and the row behind it from the one token sampled there.
Request top_request(const TopRun& run, std::size_t datum) {
  Request request;
  request.prompt = run.batch.data[datum].tokens;
  request.weights = run.weights.weights;
  request.adapter = run.weights.adapter;
  request.prompt_logprobs = true;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 1;
  request.sampling.top_logprobs = static_cast<std::int32_t>(run.top_k);
  return request;
}

void keep_top(TopRun& run, std::size_t datum, DatumOutput& out) {
  const Generation& g = run.generations[datum];
  if (g.finish == FinishReason::error) fail(ErrorCode::numeric, "data[{}]: {}", datum, g.error);
  if (g.finish == FinishReason::cancelled || g.tokens.size() != 1) fail(ErrorCode::resource_exhausted, "the server stops");
  out.top_k = run.top_k;
  const auto add = [&](const std::vector<TokenLogprob>& row) {
    for (const TokenLogprob& one : row) {
      out.top_k_indices.push_back(one.id);
      out.top_k_logprobs.push_back(one.logprob);
    }
  };
  for (const auto& row : g.prompt_top_logprobs) add(row);
  add(g.tokens[0].top);
}

}  // namespace

std::string ModelOperations::forward_top_k(const std::string& owner, const std::string& id, std::int64_t sequence, TrainingBatch batch, std::int64_t top_k,
                                           Encode<TrainingOutput> encode) {
  const SentOperation sent = SentOperation("forward").add(batch).add(static_cast<double>(top_k));
  auto run = std::make_shared<TopRun>();
  run->batch = std::move(batch);
  run->top_k = top_k;
  const auto piece_of = [this, run, encode = std::move(encode)](const OnExecutor& on, HostedModel& model, const std::string&) {
    TrainedModel& trained = tools_.resting.trained(on, model);
    const std::int64_t vocabulary = commons_.base->opened.model->facts().vocabulary,
                       most = std::min<std::int64_t>(SamplingParameters::kMaxTopLogprobs, vocabulary);
    if (!run->weights.weights) {
      commons_.refuse_critic(model.settings().base_model, "whose rows have no likeliest tokens; allowed is no top_k");
      if (run->top_k < 1 || run->top_k > most) fail(ErrorCode::invalid_argument, "loss_fn_config.top_k is {}, allowed is 1 to {}", run->top_k, most);
      // One position less than a context has: the likeliest tokens behind the last row are those of a sample.
      BatchLimits limits = batch_limits(commons_.runtime());
      --limits.max_positions;
      run->prepared = prepare_batch(run->batch, limits);
      for (std::size_t d = 0; d < run->batch.data.size(); ++d) {
        const TrainSequence& scored = run->prepared.sequences[d];
        if (scored.temperature != 1 || !scored.kept_tokens.empty())
          fail(ErrorCode::unsupported,
               "data[{}] is scored at temperature {}{}, and the likeliest tokens (top_k) are told of the whole vocabulary at temperature 1 alone; allowed "
               "is one of the two",
               d, scored.temperature, scored.kept_tokens.empty() ? "" : " over kept_tokens");
        if (!scored.experts.empty())
          fail(ErrorCode::unsupported,
               "data[{}].model_input.routing_matrices is given, and the likeliest tokens (top_k) are told of the model's own routing alone; allowed is one of "
               "the two",
               d);
      }
      const std::string what = fmt::format("the weights of model '{}' for top_k", model.id);
      const TurnRoom stays = tools_.memory.turn(on, &model, 0, what);  // others rest first
      MemoryLedger::Claim copy = tools_.memory.claim(on, "samplers", model.owner, tools_.memory.figures(on, model.settings()).copied, what);
      run->weights = tools_.memory.hold(trained.sampler_weights(), std::move(copy));
      run->generations.resize(run->batch.data.size());
    }
    const std::vector<TrainSequence>& all = run->prepared.sequences;
    if (run->scored < all.size()) {
      std::size_t end = piece_end(all, run->scored, commons_.options.tokens_a_step);
      const TurnRoom room = tools_.memory.piece(on, model, all, run->scored, end, commons_.base->options.kept->enabled());
      for (std::vector<float>& row : trained.score({all.begin() + static_cast<std::ptrdiff_t>(run->scored), all.begin() + static_cast<std::ptrdiff_t>(end)}))
        run->result.logprobs.push_back(std::move(row));
      run->scored = end;
      return NumberedOperation::Worked{.again = true};
    }
    if (run->asked == run->answered && run->asked < all.size()) {
      const std::size_t begin = run->asked, end = std::min(all.size(), begin + kMostAtOnce);
      std::vector<Request> requests;
      for (std::size_t d = begin; d < end; ++d) {
        requests.push_back(top_request(*run, d));
        requests.back().account = commons_.generation->callers().account(model.owner, WorkClass::rollouts);
        requests.back().is_stream = false;
      }
      try {
        commons_.generation->generate_all(std::move(requests), {}, [run, begin](const OnExecutor&, std::size_t i, Generation&& generation) {
          run->generations[begin + i] = std::move(generation);
          ++run->answered;
        });
        run->asked = end;
      } catch (const Error& e) {
        if (e.code() != ErrorCode::resource_exhausted) throw;  // full: the next turn asks again
      }
      return NumberedOperation::Worked{.again = true};
    }
    if (run->answered < all.size()) return NumberedOperation::Worked{.again = true};  // the engine has its turns between ours
    TrainingOutput output = training_output(run->prepared, run->result);
    for (std::size_t d = 0; d < output.data.size(); ++d) keep_top(*run, d, output.data[d]);
    commons_.statistics.computed(run->batch.data, true);
    return NumberedOperation::Worked{.result = encode(output)};
  };
  return to_.lanes.submit(owner, id, sequence, sent, piece_of);
}

}  // namespace lockstep
