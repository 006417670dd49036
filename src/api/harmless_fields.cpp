#include "api/harmless_fields.h"

namespace lockstep {
namespace {
constexpr HarmlessField kHarmlessFields[] = {
    // OpenAI's, and Fireworks' completions
    {"user", "names the caller's own user; nothing here is billed or watched by user"},
    {"metadata", "of completions: notes for the vendor's dashboard; only responses are kept, and theirs with them"},
    {"store", "of completions: keeps answers in the vendor's account; only responses are kept here"},
    {"service_tier", "the vendor's price of a place in the queue; all requests here share one"},
    {"safety_identifier", "names the caller's own user for the vendor's policing"},
    {"prompt_cache_key", "steers requests to a machine with the cache; there is one machine"},
    {"prompt_cache_retention", "how long a cache entry lives; no answer depends on the cache"},
    {"prompt_cache_options", "how a cache is used; no answer depends on the cache"},
    {"prediction", "a guess at the answer, for speed; no token depends on it"},
    {"speculation", "a guess at the answer, for speed; no token depends on it"},
    {"cache_prompt", "whether a cache is used; no answer depends on the cache"},
    {"cache_control", "marks where a cache entry ends; no answer depends on the cache"},
    {"include_obfuscation", "pads the parts of a stream against eavesdroppers who count bytes; no text depends on it"},
    // both training protocols
    {"type", "repeats the route's name"},
    {"sdk_version", "no answer depends on the client's version"},
    {"events", "telemetry is accepted, as both packages insist, and thrown away"},
    {"platform", "part of telemetry"},
    {"process_uuid", "part of telemetry"},
    {"allow_metadata_only", "allows a result's size to be told before the result; results come at once"},
    {"retrieved_request_ids", "lets a server drop results that were read; they are kept for the whole time that is promised"},
    {"record_stability_info", "keeps what the loss stable_reinforce needs, which is refused; the samples are the same"},
    {"sampling_session_seq_id", "of save_weights_for_sampler: numbers a sampler without a name; the operation's own number tells repeats apart"},
    {"comms", "the order in which a client sends the requests of a call; all orders give the same bits"},
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
    {"annotations", "notes for the vendor"},
    {"preemptible", "a cheaper machine that may be taken away; this one is not"},
    {"inactivityTimeout", "stops hosted machines that idle; an idle job takes no machine"},
    {"disableInactivityCleanup", "keeps hosted machines that idle; an idle job takes no machine"},
    {"hotLoadDeploymentId", "the bucket that a job's snapshots go to; every deployment takes every snapshot of its key"},
    {"hot_load_deployment_id", "the bucket that a checkpoint lies in; checkpoints are found by name"},
    {"enableHotLoad", "true: every deployment takes snapshots"},
    {"forTraining", "how the vendor places a deployment; the machine is this one"},
    {"hotLoadBucketType", "FW_HOSTED: snapshots lie with the server"},
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
