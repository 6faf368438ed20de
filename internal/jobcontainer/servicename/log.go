package servicename

func fromWorkerLog([]byte) ([]Declared, bool) { return nil, false }

func resolve([]Declared, []string) []string { return nil }
