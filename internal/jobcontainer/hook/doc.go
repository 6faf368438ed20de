// Package hook has the protocol by which GitHub's runner calls a container hook (ACTIONS_RUNNER_CONTAINER_HOOKS): the JSON that it
// writes to the hook's standard input, and the JSON that the hook writes to the response file.
//
// # What is strict, and what is not
//
// Every field that is read must have its type, and the errors name the field. Names are compared exactly, no name may occur
// twice, and nothing may follow the object.
//
// Unknown fields of the envelope, of `args` and of a container are ignored, and named in Input.Ignored. GitHub serializes whole
// classes of its runner there (HookInput.cs), and the runner updates itself: with a new property in one of them, no job
// container of the fleet would start any more. Unknown fields of a volume or of a registry are errors. There, an unknown property
// changes what a known one means (what is mounted, or which credentials go to which host), and to ignore it would do the wrong thing.
package hook
