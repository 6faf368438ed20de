package standin

import (
	"fmt"
	"slices"
	"time"
)

// Accounts, repositories and runs have many members that no client of ours reads. GitHub's description of its API requires them, and a
// client that was generated from it refuses an answer that leaves them out: the REST API has them, and webhooks the few that are read.

// accountPaths are an account's addresses, below its own.
var accountPaths = map[string]string{
	"followers_url": "/followers", "following_url": "/following{/other_user}", "gists_url": "/gists{/gist_id}", "starred_url": "/starred{/owner}{/repo}",
	"subscriptions_url": "/subscriptions", "organizations_url": "/orgs", "repos_url": "/repos", "events_url": "/events{/privacy}",
	"received_events_url": "/received_events",
}

// repositoryPaths are a repository's addresses, below its own.
var repositoryPaths = map[string]string{
	"archive_url": "/{archive_format}{/ref}", "assignees_url": "/assignees{/user}", "blobs_url": "/git/blobs{/sha}", "branches_url": "/branches{/branch}",
	"collaborators_url": "/collaborators{/collaborator}", "comments_url": "/comments{/number}", "commits_url": "/commits{/sha}", "compare_url": "/compare/{base}...{head}",
	"contents_url": "/contents/{+path}", "contributors_url": "/contributors", "deployments_url": "/deployments", "downloads_url": "/downloads", "events_url": "/events",
	"forks_url": "/forks", "git_commits_url": "/git/commits{/sha}", "git_refs_url": "/git/refs{/sha}", "git_tags_url": "/git/tags{/sha}", "hooks_url": "/hooks",
	"issue_comment_url": "/issues/comments{/number}", "issue_events_url": "/issues/events{/number}", "issues_url": "/issues{/number}", "keys_url": "/keys{/key_id}",
	"labels_url": "/labels{/name}", "languages_url": "/languages", "merges_url": "/merges", "milestones_url": "/milestones{/number}",
	"notifications_url": "/notifications{?since,all,participating}", "pulls_url": "/pulls{/number}", "releases_url": "/releases{/id}", "stargazers_url": "/stargazers",
	"statuses_url": "/statuses/{sha}", "subscribers_url": "/subscribers", "subscription_url": "/subscription", "tags_url": "/tags", "teams_url": "/teams", "trees_url": "/git/trees{/sha}",
}

// accountMembers is an account as the REST API shows it.
func (s *Server) accountMembers(a ownerJSON) map[string]any {
	out := map[string]any{
		"login": a.Login, "id": a.ID, "node_id": fmt.Sprintf("U_%d", a.ID), "type": a.Type, "url": a.URL, "html_url": s.opts.URL + "/" + a.Login,
		"avatar_url": fmt.Sprintf("%s/avatars/%d", s.opts.URL, a.ID), "gravatar_id": "", "site_admin": false,
	}
	for member, path := range accountPaths {
		out[member] = a.URL + path
	}
	return out
}

// repositoryMembers is a repository as the REST API shows it.
func (s *Server) repositoryMembers(r *repo) map[string]any {
	short := s.repoJSON(r)
	out := map[string]any{
		"id": short.ID, "node_id": fmt.Sprintf("R_%d", short.ID), "name": short.Name, "full_name": short.FullName, "private": short.Private, "owner": s.accountMembers(*short.Owner),
		"html_url": short.HTMLURL, "url": short.URL, "default_branch": short.DefaultBranch, "visibility": "private", "description": nil, "fork": false,
		"clone_url": short.HTMLURL + ".git", "git_url": "git:" + short.HTMLURL + ".git", "ssh_url": "git@github.invalid:" + short.FullName + ".git", "svn_url": short.HTMLURL,
		"homepage": nil, "language": nil, "license": nil, "mirror_url": nil, "archived": false, "disabled": false, "is_template": false, "topics": []string{},
		"forks": 0, "forks_count": 0, "open_issues": 0, "open_issues_count": 0, "watchers": 0, "watchers_count": 0, "stargazers_count": 0, "network_count": 0,
		"subscribers_count": 0, "size": 0, "has_downloads": false, "has_issues": true, "has_projects": false, "has_wiki": false, "has_pages": false, "has_discussions": false,
		"created_at": stamp(s.began), "updated_at": stamp(s.began), "pushed_at": stamp(s.began),
		"permissions": map[string]bool{"admin": false, "maintain": false, "push": false, "triage": false, "pull": true},
	}
	for member, path := range repositoryPaths {
		out[member] = short.URL + path
	}
	return out
}

// commitMembers is the commit that a run is of.
func commitMembers(r *run) map[string]any {
	author := map[string]string{"name": "standin", "email": "standin@github.invalid"}
	return map[string]any{
		"id": r.sha, "tree_id": r.sha, "message": "A commit of the stand-in", "timestamp": r.createdAt.UTC().Format(time.RFC3339), "author": author, "committer": author,
	}
}

// runMembers is a run as the REST API shows it.
func (s *Server) runMembers(r *run) map[string]any {
	api := s.opts.URL + "/repos/" + r.repo.fullName()
	address := fmt.Sprintf("%s/actions/runs/%d", api, r.id)
	repository, actor := s.repositoryMembers(r.repo), s.accountMembers(s.sender())
	return map[string]any{
		"id": r.id, "name": r.workflowName, "node_id": fmt.Sprintf("WFR_%d", r.id), "head_branch": r.branch, "head_sha": r.sha,
		"path": ".github/workflows/" + r.fileName, "display_title": r.workflowName, "run_number": r.number, "run_attempt": r.attempt, "event": r.event,
		"status": r.status(), "conclusion": orNull(r.conclusion), "workflow_id": r.workflowID, "check_suite_id": r.id, "check_suite_node_id": fmt.Sprintf("CS_%d", r.id),
		"url": address, "html_url": fmt.Sprintf("%s/%s/actions/runs/%d", s.opts.URL, r.repo.fullName(), r.id), "jobs_url": address + "/jobs", "logs_url": address + "/logs",
		"check_suite_url": fmt.Sprintf("%s/check-suites/%d", api, r.id), "artifacts_url": address + "/artifacts", "cancel_url": address + "/cancel",
		"rerun_url": address + "/rerun", "previous_attempt_url": nil, "workflow_url": fmt.Sprintf("%s/actions/workflows/%d", api, r.workflowID), "pull_requests": []any{},
		"created_at": stamp(r.createdAt), "updated_at": stamp(r.updatedAt), "run_started_at": stamp(r.attemptedAt), "head_commit": commitMembers(r),
		"repository": repository, "head_repository": repository, "actor": actor, "triggering_actor": actor,
	}
}

// RESTRoutes are the patterns of all REST routes, sorted, as RouteCalls names them.
func (s *Server) RESTRoutes() []string { return slices.Sorted(slices.Values(s.restRoutes)) }
