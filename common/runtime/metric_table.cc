#include "common/runtime/metric_table.h"

#include <algorithm>
#include <array>

namespace foretoken {
namespace {

constexpr auto kCounter = MetricType::kCounter;
constexpr auto kGauge = MetricType::kGauge;
constexpr auto kHistogram = MetricType::kHistogram;
constexpr bool kAlsoVllm = true;

// In the order of the reference page: what clients wait for, load, speculation, the rest.
constexpr MetricInfo kTable[] = {
    // ---- latency
    {"time_to_first_token_seconds", kHistogram, "router", "",
     "From the arrival of a request at the router to the arrival of its first token there; "
     "queueing, tokenizing and prefill are in it.",
     kAlsoVllm},
    {"inter_token_latency_seconds", kHistogram, "router", "",
     "Between two arrivals of tokens of one streamed answer at the router, one observation each: "
     "tokens "
     "that one round commits together arrive together, so this is the pause that a client sees, "
     "and not the time per token.",
     kAlsoVllm},
    {"request_time_per_output_token_seconds", kHistogram, "target", "",
     "Of an answer, the time from its first to its last token divided by the tokens after the "
     "first, one observation for each answer of two or more tokens.",
     kAlsoVllm},
    {"e2e_request_latency_seconds", kHistogram, "router", "",
     "From the arrival of a request at the router to its reply; cancelled and failed requests are "
     "left out.",
     kAlsoVllm},
    {"request_queue_time_seconds", kHistogram, "router", "",
     "For how long an answered request waited for a place at a target, in the router's queue and "
     "then in the target's.",
     kAlsoVllm},
    {"request_prefill_time_seconds", kHistogram, "target", "",
     "From the first pass with rows of a sequence to the end of the pass that committed its first "
     "token; cancelled sequences are left out.",
     kAlsoVllm},
    {"request_decode_time_seconds", kHistogram, "target", "",
     "From the end of the pass that committed the first token of a sequence to the end of the pass "
     "that committed its last; cancelled sequences are left out.",
     kAlsoVllm},
    {"request_prompt_tokens", kHistogram, "router", "", "Prompt tokens of an answered request.",
     kAlsoVllm},
    {"request_generation_tokens", kHistogram, "router", "", "Tokens of the answer to a request.",
     kAlsoVllm},

    // ---- requests
    {"router_requests", kGauge, "router", "", "Requests under way."},
    {"num_requests_running", kGauge, "target", "", "Sequences in the batch.", kAlsoVllm},
    {"num_requests_waiting", kGauge, "router, target", "",
     "Requests that wait: in the router for a target, in a target for a place in its batch. "
     "The router counts those whose model is not known yet under an empty model_name.",
     kAlsoVllm},
    {"requests_total", kCounter, "router", "", "Requests accepted."},
    {"request_success_total", kCounter, "router", "finished_reason",
     "Requests that a target had begun and that were answered, by how the answer ended: stop, "
     "length, cancelled or deadline.",
     kAlsoVllm},
    {"request_errors_total", kCounter, "router", "", "Accepted requests that ended in an error."},
    {"request_refused_total", kCounter, "router", "", "Requests refused on arrival."},
    {"request_cancelled_total", kCounter, "router", "", "Requests cancelled."},
    {"request_joined_total", kCounter, "router", "", "Repeated requests joined or answered again."},
    {"request_migrations_total", kCounter, "router", "", "Moves to another target."},
    {"stream_replays_total", kCounter, "router", "", "Text streams replayed."},
    {"prompt_tokens_total", kCounter, "target", "", "Prompt tokens prefilled.", kAlsoVllm},
    {"generation_tokens_total", kCounter, "target", "", "Tokens committed.", kAlsoVllm},

    // ---- KV cache
    {"kv_cache_usage_perc", kGauge, "target", "", "Share of KV blocks in use, 0 to 1.", kAlsoVllm},
    {"kv_cache_blocks", kGauge, "target", "state",
     "KV blocks by state; free and cached ones can be had, cached ones hold prefixes until then."},
    {"cache_config_info", kGauge, "target", "block_size, num_gpu_blocks",
     "1; tokens of a KV block and blocks there are, under the names that vLLM gives them.",
     kAlsoVllm},
    {"num_preemptions_total", kCounter, "target", "", "Sequences whose blocks were taken.",
     kAlsoVllm},
    {"prefix_cache_queries_total", kCounter, "target", "", "Prompt tokens looked up.", kAlsoVllm},
    {"prefix_cache_hits_total", kCounter, "target", "", "Prompt tokens found.", kAlsoVllm},

    // ---- speculation
    {"spec_decode_num_drafts_total", kCounter, "target", "", "Rounds that verified guesses.",
     kAlsoVllm},
    {"spec_decode_num_draft_tokens_total", kCounter, "target", "", "Guesses verified.", kAlsoVllm},
    {"spec_decode_num_accepted_tokens_total", kCounter, "target", "", "Guesses accepted.",
     kAlsoVllm},
    {"spec_decode_num_accepted_tokens_per_pos_total", kCounter, "target", "position",
     "Guesses accepted, by position.", kAlsoVllm},
    {"spec_decode_round_seconds", kHistogram, "draft, target", "phase",
     "Parts of a round, each timed by one process. propose: a draft, from taking in a question to "
     "its answer. transport: a target, from a question until it took in the answer, less what the "
     "draft took; the time that messages wait while either computes is in it. "
     "wait: a target, for how long a pass was held back for answers. verify: a target, planning "
     "and running a pass that verified guesses. commit: a target, from there until its tokens were "
     "sent."},
    {"spec_decode_fallback_total", kCounter, "target", "reason",
     "Rounds without guesses, by reason."},
    {"proposals_total", kCounter, "target", "outcome, source",
     "Proposed tokens whose turn came, verified or not, by who proposed them: right where the text "
     "went on so, else wrong. A token that several proposed counts for each; a runner-up "
     "counts only where it is right."},
    {"proposals_agreed_total", kCounter, "target", "",
     "Of those tokens, the ones that several had proposed."},
    {"spec_decode_silent_passes_total", kCounter, "target", "",
     "Passes after which no draft was asked: asking had cost more than it brought."},
    {"spec_decode_asking_gain", kGauge, "target", "",
     "Tokens per second with drafts asked, of those without, when last compared; 0 = never."},

    // ---- drafts
    {"drafts_assigned", kGauge, "target", "", "Drafts this target may use."},
    {"drafts_aside", kGauge, "target", "", "Assigned drafts that are set aside now."},
    {"drafts_set_aside_total", kCounter, "target", "",
     "Times that a draft was set aside, as its guesses were worth nothing."},
    {"draft_link", kGauge, "target", "draft, tier",
     "1 for the tier that guesses of this draft take."},
    {"draft_link_fallbacks_total", kCounter, "draft, target", "",
     "Messages that a link did not take: sent over ZeroMQ."},
    {"draft_links", kGauge, "draft", "", "Targets linked through shared memory."},
    {"draft_sequences", kGauge, "draft", "", "Sequences attached."},
    {"draft_kv_cache_usage_perc", kGauge, "draft", "",
     "Share of the draft's KV blocks in use, 0 to 1."},
    {"draft_kv_cache_blocks", kGauge, "draft", "state", "The draft's KV blocks by state."},
    {"draft_steps_total", kCounter, "draft", "", "Batched passes of a model."},
    {"draft_tokens_total", kCounter, "draft", "", "Tokens guessed."},
    {"draft_tokens_kept_total", kCounter, "draft", "",
     "Guesses of a model that a target committed."},
    {"draft_tokens_cut_total", kCounter, "draft", "", "Guesses of a model that were thrown away."},
    {"draft_branches_total", kCounter, "draft", "",
     "Texts begun beside a chain, in which one of its guesses is wrong."},
    {"draft_branches_taken_total", kCounter, "draft", "",
     "Of these, those that the target's text went on with."},
    {"draft_branch_tokens_total", kCounter, "draft", "",
     "Tokens guessed beside chains; those of branches taken count in draft_tokens_total too."},
    {"draft_needs_total", kCounter, "draft", "", "Times that missing tokens were asked for."},
    {"draft_busy_total", kCounter, "draft", "", "Times that there was no room."},
    {"memory_tokens", kGauge, "draft", "state",
     "Of a memory of texts: tokens that it has, and places that no tenant has yet."},
    {"memory_tenants", kGauge, "draft", "", "Tenants of which a memory has texts."},
    {"memory_lookup_seconds", kHistogram, "draft", "", "Time of a look-up in a memory."},
    {"memory_hits_total", kCounter, "draft", "", "Look-ups in a memory that had a guess."},
    {"memory_evicted_tokens_total", kCounter, "draft", "", "Tokens that a memory has forgotten."},
    {"memory_dropped_tokens_total", kCounter, "draft", "",
     "Tokens that a memory did not take: all its places were those of tenants with running "
     "sequences."},
    {"memory_log_errors_total", kCounter, "draft", "",
     "Damaged files of a memory's log, and times that it could not be opened or written."},

    // ---- edge
    {"http_connections", kGauge, "edge", "", "Connections of HTTP clients."},
    {"http_requests_running", kGauge, "edge", "", "HTTP requests that are being read or answered."},
    {"http_connections_total", kCounter, "edge", "", "Connections taken."},
    {"http_connections_refused_total", kCounter, "edge", "",
     "Connections closed at once, at edge.max_connections."},
    {"http_requests_total", kCounter, "edge", "", "HTTP requests read whole."},
    {"http_malformed_total", kCounter, "edge", "", "What was no HTTP request, or beyond a limit."},
    {"http_timeouts_total", kCounter, "edge", "",
     "Connections closed as a header or body came too slowly."},
    {"http_abandoned_total", kCounter, "edge", "",
     "Answers whose client went away before the end."},
    {"http_overloaded_total", kCounter, "edge", "",
     "Requests refused with 503, at edge.max_bodies_mib."},
    {"http_body_bytes", kGauge, "edge", "",
     "Bodies and answers of more than 16 KiB of requests in work, in bytes."},
    {"trace_spans_total", kCounter, "edge", "outcome",
     "Spans of traces: sent to the collector, dropped as there was no room for them, or refused: "
     "the collector did not take them."},

    // ---- tokenizer
    {"tokenizer_streams", kGauge, "tokenizer", "", "Streams being decoded."},
    {"tokenizer_prompts_waiting", kGauge, "tokenizer", "", "Prompts that wait to be encoded."},
    {"tokenizer_prompts_total", kCounter, "tokenizer", "", "Prompts encoded."},
    {"tokenizer_prompts_repeated_total", kCounter, "tokenizer", "",
     "Prompts asked for again while they waited or soon after: not encoded again."},
    {"tokenizer_prompts_unwanted_total", kCounter, "tokenizer", "",
     "Prompts whose request ended before their answer."},
    {"tokenizer_prompt_tokens_total", kCounter, "tokenizer", "", "Prompt tokens encoded."},
    {"tokenizer_unassigned_code_points_total", kCounter, "tokenizer", "",
     "Code points in prompts that our Unicode tables do not know."},
    {"tokenizer_decoded_tokens_total", kCounter, "tokenizer", "", "Tokens decoded."},
    {"tokenizer_stop_strings_total", kCounter, "tokenizer", "", "Stop strings found."},

    // ---- services and what joins them
    {"peer_up", kGauge, "router", "role, peer",
     "1 while the service answers, 0 from its loss until one of its name is here or it leaves."},
    {"process_cpu_seconds_total", kCounter, "all", "",
     "Processor time of the process, all threads; ranks beside it are processes of their own."},
    {"process_resident_memory_bytes", kGauge, "all", "", "Memory of the process."},
    {"process_start_time_seconds", kGauge, "all", "",
     "When the process started, seconds since 1970."},
    {"build_info", kGauge, "all", "version, commit, isa",
     "1; version, commit, and what this processor has: avx512, avx2 or baseline."},
    {"model_info", kGauge, "draft, target", "fingerprint, numerics, max_model_len, vocab_size",
     "1; the fingerprints of weights and of numerics, the longest prompt with answer, the token "
     "ids."},
    {"dropped_log_lines_total", kCounter, "all", "",
     "Log lines that were not written, as there were more than 100 in a second."},
    {"frames_dropped_total", kCounter, "all", "",
     "Frames dropped: malformed, stale or without room."},
    {"bad_requests_total", kCounter, "router", "", "Requests that could not be read."},
    {"router_stale_total", kCounter, "router", "", "Messages about requests that are over."},
    {"transport_messages_total", kCounter, "all", "link, outcome",
     "Messages, by kind of link and outcome; busy: tries that found no room."},
    {"transport_handshakes_refused_total", kCounter, "all", "link",
     "Connections without a key that is listed."},
    {"transport_turned_away_total", kCounter, "all", "",
     "Connections over ZeroMQ closed at once, as there was no file descriptor for them."},
    {"memory_links_total", kCounter, "all", "event",
     "Links through shared memory and their messages, by event."},
};

}  // namespace

std::span<const MetricInfo> metric_table() { return kTable; }

const MetricInfo* find_metric(std::span<const MetricInfo> table, std::string_view name) {
  const auto at =
      std::find_if(table.begin(), table.end(), [&](const auto& info) { return info.name == name; });
  return at == table.end() ? nullptr : &*at;
}

}  // namespace foretoken
