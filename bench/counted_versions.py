"""Which versions of the program counted something, in results that several runs added to: a list of {"version": NAME, "count": N}, in the order in which they came."""


def earlier_versions(told, count):
    """Of the runs before, whose results are `told` (None: there are none) and count so much in all. Results that name one version are that version's."""
    if told is None:
        return []
    return [dict(one) for one in told["versions"]] if "versions" in told else [{"version": told["version"], "count": count}]


def with_this_run(earlier, version, total):
    """What is over of the total was counted by this run's version."""
    found = [dict(one) for one in earlier]
    more = total - sum(one["count"] for one in found)
    own = next((one for one in found if one["version"] == version), None)
    if own:
        own["count"] += more
    elif more or not found:
        found.append({"version": version, "count": more})
    return found


def said(versions, what):
    """In words, for a page: one version alone, several with the number of each."""
    return versions[0]["version"] if len(versions) == 1 else ", ".join(f"{one['version']} ({one['count']} {what})" for one in versions)
