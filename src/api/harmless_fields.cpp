#include "api/harmless_fields.h"

namespace lockstep {
namespace {
constexpr HarmlessField kHarmlessFields[] = {
    // OpenAI's, and Fireworks' completions
    {"user", "names the caller's own user; nothing is billed or watched by user, and an alias keeps each at one deployment"},
    {"metadata", "of completions: notes for the vendor's dashboard; only responses are kept, and theirs with them"},
    {"store", "of completions: keeps answers in the vendor's account; only responses are kept here"},
    {"service_tier", "of Fireworks' completions: these are rollouts whatever it says"},
    {"safety_identifier", "names the caller's own user for the vendor's policing; to an alias it is the user, where `user` is not given"},
    {"prompt_cache_key", "steers requests to a machine with the cache; there is one machine, and to an alias it is the user, where none is named"},
    {"prompt_cache_retention", "how long a cache entry lives; no answer depends on the cache"},
    {"prompt_cache_options", "how a cache is used; no answer depends on the cache"},
    {"name", "of a response format: a label"},
    {"description", "of a response format: a hint for the vendor's models; the schema is held without"},
    {"index", "of a tool call: left over from the parts of a stream; calls are in their order"},
    {"id", "of an item of a response that comes back; its text is what counts"},
    {"status", "of an item of a response that comes back; its text is what counts"},
    {"phase", "of an item of a response that comes back; its text is what counts"},
    {"logprobs", "of a part of an answer that comes back; its text is what counts"},
    {"lora_int_id", "vLLM's number of an adapter; here it has a name"},
    {"cache_prompt", "whether a cache is used; no answer depends on the cache"},
    {"prompt_cache_breakpoint", "marks where a cache entry ends; no answer depends on the cache"},
    {"cache_control", "marks where a cache entry ends; no answer depends on the cache"},
    {"include_obfuscation", "pads the parts of a stream against eavesdroppers who count bytes; no text depends on it"},
    // both training protocols
    {"type", "repeats the route's name"},
    {"sdk_version", "no answer depends on the client's version"},
    {"last_created_at", "of a search's cursor: the session's id says where it goes on"},
    {"session_id", "of telemetry, which is thrown away"},
    {"events", "telemetry is accepted, as both packages insist, and thrown away"},
    {"platform", "part of telemetry"},
    {"process_uuid", "part of telemetry"},
    {"allow_metadata_only", "allows a result's size to be told before the result; results come at once"},
    {"retrieved_request_ids", "lets a server drop results that were read; they are kept for the whole time that is promised"},
    {"record_stability_info", "keeps what the loss stable_reinforce needs, which is refused; the samples are the same"},
    {"sampling_session_seq_id", "of save_weights_for_sampler: numbers a sampler without a name; the operation's own number tells repeats apart"},
    {"comms", "the order in which a client sends the requests of a call; all orders give the same bits"},
    {"model_input_spans", "of which samples the tokens are, for the loss stable_reinforce, which is refused; gradients are of the tokens"},
    {"loss_fn_input_spans", "of which samples the tokens are, for the loss stable_reinforce, which is refused; gradients are of the tokens"},
    // Fireworks' resources
    {"serviceMode", "true, as the package always says: a job serves its client"},
    {"keepAlive", "whether a job outlives its work; a job here is a name and ends when it is deleted"},
    {"learningRate", "the rate of every step comes with the step"},
    {"trainerReplicaCount", "copies of the hosted trainer, for speed; no bit depends on ranks"},
    {"useReservation", "bought machines of the vendor; the machine is this one"},
    {"reservationTarget", "bought machines of the vendor; the machine is this one"},
    {"nodeCount", "hardware of the vendor; the machine is this one"},
    {"acceleratorType", "hardware of the vendor; the machine is this one"},
    {"acceleratorCount", "hardware of the vendor; the machine is this one"},
    {"region", "a place of the vendor; the machine is this one"},
    {"placement", "a place of the vendor; the machine is this one"},
    {"purpose", "a note for the vendor"},
    {"managedBy", "a note for the vendor"},
    {"annotations", "notes for the vendor; and of a part of an answer that comes back, whose text is what counts"},
    {"preemptible", "a cheaper machine that may be taken away; this one is not"},
    {"inactivityTimeout", "stops hosted machines that idle; an idle job takes no machine"},
    {"disableInactivityCleanup", "keeps hosted machines that idle; an idle job takes no machine"},
    {"hotLoadDeploymentId", "the bucket that a job's snapshots go to; every deployment takes every snapshot of its key"},
    {"hot_load_deployment_id", "the bucket that a checkpoint lies in; checkpoints are found by name"},
    {"enableHotLoad", "true: every deployment takes snapshots"},
    {"forTraining", "how the vendor places a deployment; the machine is this one"},
    {"hotLoadBucketType", "FW_HOSTED: snapshots lie with the server"},
    {"deploymentId", "of a job: the bucket that its snapshots go to; every deployment takes every snapshot of its key"},
    {"skipShapeValidation", "which checks the vendor makes of its machines; the machine is this one"},
    {"acceptShapelessRisk", "which checks the vendor makes of its machines; the machine is this one"},
    {"ignoreChecks", "whether a deployment that was sampled of late may be deleted; it may"},
    {"hard", "whether a deleted deployment can come back; one that is made again is the same"},
    {"reset_prompt_cache", "cached prefixes belong to their weights, so another snapshot never reads them"},
    {"incremental_snapshot_metadata", "says what a delta is a delta of; a snapshot holds whole weights"},
};
}  // namespace

std::span<const HarmlessField> harmless_fields() { return kHarmlessFields; }

std::string_view harmless_reason(std::string_view name) {
  for (const HarmlessField& field : kHarmlessFields)
    if (field.name == name) return field.reason;
  return {};
}

}  // namespace lockstep
